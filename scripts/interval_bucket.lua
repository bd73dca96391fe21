-- Token bucket refilled in steps: src/limit/interval_bucket.rs, in Lua.
-- Limit: {capacity, refill, period, starts_empty}. State: {owed, anchor, era, refunded, until}.
-- Charge: {weight, taken, paid, anchor_before, after_owed, after_anchor, era, refunded}.

local function text(s)
  if s[5] == 0 then return format('%d %d', s[1], s[2]) end
  return spaced(s)
end

local function parse(text)
  local plain = checked(text, 2)
  if plain then return {plain[1], plain[2], 0, 0, 0} end
  return checked(text, 5)
end

local function limit(n)
  return {capacity = n[1], refill = n[2], period = n[3], empty = n[4] == 1}
end

local function fresh(p, now)
  return {p.empty and p.capacity or 0, now, 0, 0, 0}
end

local function interval_time(p, units)
  return div_ceil(units, p.refill) * p.period
end

local function fill(p)
  return interval_time(p, p.capacity)
end

local function fresh_at(p, s)
  local full = s[2] + interval_time(p, s[1])
  if p.empty then full = full + kept_full(fill(p)) end
  return max(full, s[5])
end

-- Whole periods between anchor and at.
local function interval_periods(p, anchor, at)
  local elapsed = max(0, at - anchor)
  return (elapsed - fmod(elapsed, p.period)) / p.period
end

local function interval_advance(p, s, at)
  local periods = interval_periods(p, s[2], at)
  local owed = max(0, s[1] - periods * p.refill)
  if owed == 0 then return 0, max(at, s[2]) end
  return owed, s[2] + periods * p.period
end

local function wait(p, s, now, at, weight)
  if weight > p.capacity then return -1 end
  local room = p.capacity - weight
  if interval_advance(p, s, at) <= room then return 0 end
  return max(0, s[2] + interval_time(p, s[1] - room) - at)
end

local function charge(p, s, now, at, weight)
  if s[5] <= now then s[3], s[4], s[5] = 0, 0, 0 end
  -- As of a token bucket, the quiet before now is over.
  local left, since = interval_advance(p, s, now)
  if left == 0 then s[1], s[2] = left, since end
  local owed, anchor = interval_advance(p, s, at)
  local charge = {weight, weight, s[1] - owed, s[2], owed + weight, anchor, s[3], s[4]}
  s[1], s[2] = owed + weight, anchor
  if s[5] > 0 then s[5] = max(s[5], s[2] + interval_time(p, s[1])) end
  return charge
end

local function undo(p, s, c)
  s[1], s[2] = max(0, s[1] - c[2]) + c[3], c[4]
end

local function join(p, a, b)
  local c, taken = {unpack(b)}, a[2] + b[2]
  c[2] = max(0, taken - b[3])
  c[3], c[4] = a[3] + max(0, b[3] - taken), a[4]
  return c
end

local function figures(p, s, now, at)
  local owed = interval_advance(p, s, at)
  local reset = 0
  if owed > 0 then reset = max(0, s[2] + interval_time(p, s[1]) - at) end
  return p.capacity, max(0, p.capacity - owed), reset
end

local function lower(p, s, base, c, actual)
  s[5] = max(s[5], s[2] + interval_time(p, s[1]))
  local owed = 0
  if c[7] == s[3] then
    c[5] = max(0, c[5] - max(0, s[4] - c[8]))
    owed = max(0, c[5] - interval_periods(p, c[6], base) * p.refill)
  end
  local refund = min(max(0, c[2] - actual), owed)
  s[4] = s[4] + refund
  if s[4] > LEDGER_MOST then s[3], s[4] = s[3] + 1, 0 end
  s[1] = max(0, s[1] - refund)
  c[1], c[2], c[5] = actual, c[2] - refund, max(0, c[5] - refund)
  c[7], c[8] = s[3], s[4]
end

-- More could be given back than was.
local function owes(p, c, actual)
  return c[5] > 0 and c[2] > actual
end

local function raise(p, s, base, c, actual, now)
  s[1], s[2] = interval_advance(p, s, now)
  local periods = floor(MAX_DEBT / p.period)
  local most = min(periods * p.refill, 1125899906842624)
  local raised = max(min(s[1] + max(0, actual - c[2]), most), s[1])
  c[1], c[2] = actual, c[2] + raised - s[1]
  s[1] = raised
end

local function reconfigure(p, from, s, now, base)
  if s[5] > 0 then s[3], s[4] = s[3] + 1, 0 end
  local owed, anchor = interval_advance(from, s, base)
  local most = max(floor(MAX_DEBT / p.period) * p.refill, p.capacity)
  local kept = max(0, owed - max(0, from.capacity - p.capacity))
  s[1], s[2] = min(kept + max(0, p.capacity - from.capacity), most), max(anchor, base - p.period)
end

kinds.I = {
  takes = 4, size = 5, charge_size = 8, text = text, parse = parse, limit = limit, fresh = fresh,
  fill = fill, fresh_at = fresh_at, wait = wait, charge = charge, undo = undo, join = join, figures = figures,
  lower = lower, owes = owes, raise = raise, reconfigure = reconfigure,
}
