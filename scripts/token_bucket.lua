-- Token bucket: src/limit/token_bucket.rs and src/limit/ledger.rs, in Lua. GCRA, ITU-T I.371.
-- Limit: {capacity, n, p, starts_empty}, n units per p microseconds in lowest terms; full is the cost of
-- capacity. State: {tat_us, tat_rem, era, refunded_us, refunded_rem, until}; the last four are the ledger,
-- and there is none while until is 0.
-- Charge: {weight, cost_us, cost_rem, idle_us, idle_rem, end_us, end_rem, era, refunded_us, refunded_rem}.
local function text(s)
  if s[6] == 0 then return format('%016d %016d', s[1], s[2]) end
  return spaced(s)
end

local function parse(text)
  local plain = checked(text, 2)
  if plain then return {plain[1], plain[2], 0, 0, 0, 0} end
  return checked(text, 6)
end

local function limit(n)
  local rule = {capacity = n[1], n = n[2], p = n[3], empty = n[4] == 1, full_us = 0, full_rem = 0}
  rule.full_us, rule.full_rem = cost(rule.capacity, rule.n, rule.p)
  return rule
end

local function fresh(p, now)
  if p.empty then
    return {now + p.full_us, p.full_rem, 0, 0, 0, 0}
  end
  return {now, 0, 0, 0, 0, 0}
end

local function fill(p)
  return tick_ceil(p.full_us, p.full_rem)
end

local function fresh_at(p, s)
  local full = tick_ceil(s[1], s[2])
  if p.empty then full = full + kept_full(fill(p)) end
  return max(full, s[6])
end

-- 0: now; more: so many microseconds from at; -1: never.
local function wait(p, s, now, at, weight)
  if weight > p.capacity then return -1 end
  local us, rem = tick_sub(s[1], s[2], at, 0, p.n)
  local cus, crem = cost(weight, p.n, p.p)
  us, rem = tick_add(us, rem, cus, crem, p.n)
  if not tick_less(p.full_us, p.full_rem, us, rem) then return 0 end
  return tick_ceil(tick_sub(us, rem, p.full_us, p.full_rem, p.n))
end

local function charge(p, s, now, at, weight)
  if s[6] <= now then s[3], s[4], s[5], s[6] = 0, 0, 0, 0 end
  local us, rem = tick_max(at, 0, s[1], s[2])
  -- What comes to be owed before it is undone is not paid by the quiet before now, which is over.
  local qus, qrem = tick_max(now, 0, s[1], s[2])
  local ius, irem = tick_sub(us, rem, qus, qrem, p.n)
  local cus, crem = cost(weight, p.n, p.p)
  s[1], s[2] = tick_add(us, rem, cus, crem, p.n)
  if s[6] > 0 then s[6] = max(s[6], tick_ceil(s[1], s[2])) end
  return {weight, cus, crem, ius, irem, s[1], s[2], s[3], s[4], s[5]}
end

local function undo(p, s, c)
  local us, rem = tick_add(c[2], c[3], c[4], c[5], p.n)
  s[1], s[2] = tick_sub(s[1], s[2], us, rem, p.n)
end

-- What undoes both, of which b came right after a: in all kinds.
local function join(p, a, b)
  local c = {unpack(b)}
  c[2], c[3] = tick_add(a[2], a[3], b[2], b[3], p.n)
  c[4], c[5] = tick_add(a[4], a[5], b[4], b[5], p.n)
  return c
end

local function figures(p, s, now, at)
  local us, rem = tick_sub(s[1], s[2], at, 0, p.n)
  local fus, frem = tick_sub(p.full_us, p.full_rem, us, rem, p.n)
  return p.capacity, brings(fus, frem, p.n, p.p), tick_ceil(us, rem)
end

-- Settles a charge at less: gives back what time has not given back already.
local function lower(p, s, base, c, actual)
  local n = p.n
  s[6] = max(s[6], tick_ceil(s[1], s[2]))
  local ous, orem = 0, 0
  if c[8] == s[3] then
    local sus, srem = tick_sub(s[4], s[5], c[9], c[10], n)
    c[6], c[7] = tick_sub(c[6], c[7], sus, srem, n)
    ous, orem = tick_sub(c[6], c[7], base, 0, n)
  end
  local aus, arem = cost(actual, n, p.p)
  local rus, rrem = tick_sub(c[2], c[3], aus, arem, n)
  rus, rrem = tick_min(rus, rrem, ous, orem)
  s[4], s[5] = tick_add(s[4], s[5], rus, rrem, n)
  if s[4] > LEDGER_MOST then s[3], s[4], s[5] = s[3] + 1, 0, 0 end
  s[1], s[2] = tick_sub(s[1], s[2], rus, rrem, n)
  c[1] = actual
  c[2], c[3] = tick_sub(c[2], c[3], rus, rrem, n)
  c[6], c[7] = tick_sub(c[6], c[7], rus, rrem, n)
  c[8], c[9], c[10] = s[3], s[4], s[5]
end

-- More could be given back than was.
local function owes(p, c, actual, now)
  local aus, arem = cost(actual, p.n, p.p)
  return c[6] > now and tick_less(aus, arem, c[2], c[3])
end

-- Settles a charge at more, into debt if need be.
local function raise(p, s, base, c, actual, now)
  local n = p.n
  local aus, arem = cost(actual, n, p.p)
  local xus, xrem = tick_sub(aus, arem, c[2], c[3], n)
  local us, rem = tick_max(s[1], s[2], now, 0)
  us, rem = tick_add(us, rem, xus, xrem, n)
  us, rem = tick_min(us, rem, base + MAX_DEBT, 0)
  us, rem = tick_max(us, rem, s[1], s[2])
  local tus, trem = tick_sub(us, rem, s[1], s[2], n)
  s[1], s[2] = us, rem
  c[1] = actual
  c[2], c[3] = tick_add(c[2], c[3], tus, trem, n)
end

-- Carries the tokens, or the debt, over from other parameters; new room is empty.
local function reconfigure(p, from, s, now, base)
  if s[6] > 0 then s[3], s[4], s[5] = s[3] + 1, 0, 0 end
  local us, rem = tick_sub(s[1], s[2], base, 0, from.n)
  local lost = max(0, from.capacity - p.capacity)
  local gus, grem = cost(max(0, p.capacity - from.capacity), p.n, p.p)
  if p.n == from.n and p.p == from.p then
    local lus, lrem = cost(lost, p.n, p.p)
    us, rem = tick_sub(us, rem, lus, lrem, p.n)
  else
    us, rem = cost(max(0, brings_up(us, rem, from.n, from.p) - lost), p.n, p.p)
  end
  us, rem = tick_add(us, rem, gus, grem, p.n)
  us, rem = tick_add(base, 0, us, rem, p.n)
  s[1], s[2] = tick_min(us, rem, base + MAX_DEBT, 0)
end

kinds.T = {
  takes = 4, size = 6, charge_size = 10, text = text, parse = parse, limit = limit, fresh = fresh,
  fill = fill, fresh_at = fresh_at, wait = wait, charge = charge, undo = undo, join = join, figures = figures,
  lower = lower, raise = raise, owes = owes, reconfigure = reconfigure,
}
