-- Pacer: src/limit/pacer.rs, in Lua.
-- Limit: {burst, n, p, earn_permille}; full is the cost of the burst.
-- State: {next_us, next_rem, level_us, level_rem, carry, drip, envelope_us, envelope_rem, turn}.
-- Charge: {weight, now, at, then the state before (9 numbers) and after (9 numbers)}.
local function limit(n)
  local rule = {burst = n[1], n = n[2], p = n[3], earn = n[4], full_us = 0, full_rem = 0}
  rule.full_us, rule.full_rem = cost(rule.burst, rule.n, rule.p)
  return rule
end

local function fresh(p, now)
  return {now, 0, 0, 0, 0, now, now, 0, 0}
end

-- How long it takes to earn back `level`; what would take longer than ten years is forgotten by then.
local function pacer_earned(p, level)
  if level == 0 then return 0 end
  if level >= MAX_AHEAD / 1000 * p.earn then return MAX_AHEAD end
  local rest = fmod(level, p.earn)
  return (level - rest) / p.earn * 1000 + div_ceil(rest * 1000, p.earn)
end

local function fill(p)
  return pacer_earned(p, tick_ceil(p.full_us, p.full_rem))
end

local function pacer_good_at(p, s)
  local quiet = max(tick_ceil(s[1], s[2]), tick_ceil(s[7], s[8]))
  return max(quiet, s[6] + pacer_earned(p, tick_ceil(s[3], s[4])))
end

-- A slot within the microsecond before a call keeps its fraction, so the key is not as new then.
local function fresh_at(p, s)
  return max(pacer_good_at(p, s), tick_ceil(s[1], s[2]) + (s[2] > 0 and 1 or 0))
end

-- The level at `now`, and what is carried: it falls in quiet times only.
local function pacer_leak(p, s, now)
  if tick_less(now, 0, s[1], s[2]) then return s[3], s[4], s[5] end
  local elapsed = max(0, now - s[6])
  local part = fmod(elapsed, 1000)
  local fine = part * p.earn + s[5]
  local carry = fmod(fine, 1000)
  local us, rem = tick_sub(s[3], s[4], (elapsed - part) / 1000 * p.earn + (fine - carry) / 1000, 0, p.n)
  if us == 0 and rem == 0 then carry = 0 end
  return us, rem, carry
end

local function pacer_free(p, s, now, at, cus, crem)
  if tick_less(p.full_us, p.full_rem, cus, crem) or tick_less(at, 0, s[1], s[2]) then return false end
  local us, rem = pacer_leak(p, s, now)
  us, rem = tick_add(us, rem, cus, crem, p.n)
  if tick_less(p.full_us, p.full_rem, us, rem) then return false end
  us, rem = tick_max(s[7], s[8], at, 0)
  us, rem = tick_add(us, rem, cus, crem, p.n)
  local mus, mrem = tick_add(at, 0, p.full_us, p.full_rem, p.n)
  return not tick_less(mus, mrem, us, rem)
end

local function wait(p, s, now, at, weight)
  if tick_ceil(cost(weight, p.n, p.p)) > MAX_AHEAD then return -1 end
  return max(0, tick_ceil(s[1], s[2]) - at)
end

local function pacer_copy(c, s)
  for i = 1, 9 do c[#c + 1] = s[i] end
end

local function charge(p, s, now, at, weight)
  local c = {weight, now, at}
  pacer_copy(c, s)
  local cus, crem = cost(weight, p.n, p.p)
  local free = pacer_free(p, s, now, at, cus, crem)
  local lus, lrem, carry = pacer_leak(p, s, now)
  local eus, erem = tick_max(s[7], s[8], at, 0)
  s[7], s[8] = tick_add(eus, erem, cus, crem, p.n)
  s[6], s[9] = max(s[6], now), s[9] + 1
  if free then
    s[3], s[4] = tick_add(lus, lrem, cus, crem, p.n)
    s[5] = carry
  else
    -- A slot within the microsecond before `at` keeps its fraction, else the rate would drift.
    local us, rem = s[1], s[2]
    if tick_ceil(us, rem) ~= at then us, rem = tick_max(us, rem, at, 0) end
    s[1], s[2] = tick_add(us, rem, cus, crem, p.n)
    s[3], s[4], s[5] = p.full_us, p.full_rem, 0
  end
  pacer_copy(c, s)
  return c
end

-- The time tells it from a charge of a key that was forgotten since and counts anew.
local function pacer_newest(s, c)
  return s[9] == c[21] and s[6] == c[18]
end

-- What was settled upward came after the charge, and is not paid by the quiet before it: what the charge itself
-- took goes, and that may be nothing. `from` is where that of the charge begins: before it, and 9 on, after it.
local function pacer_without(p, us, rem, c, from)
  if not tick_less(c[from + 9], c[from + 10], us, rem) then return c[from], c[from + 1] end
  local bus, brem = tick_max(c[from], c[from + 1], c[2], 0)
  local tus, trem = tick_sub(c[from + 9], c[from + 10], bus, brem, p.n)
  return tick_sub(us, rem, tus, trem, p.n)
end

local function undo(p, s, c)
  if not pacer_newest(s, c) then return end
  local nus, nrem = pacer_without(p, s[1], s[2], c, 4)
  local eus, erem = pacer_without(p, s[7], s[8], c, 10)
  for i = 3, 9 do s[i] = c[3 + i] end
  s[1], s[2], s[7], s[8] = nus, nrem, eus, erem
end

-- With what was settled upward between.
local function join(p, a, b)
  if a[21] ~= b[12] or a[18] ~= b[9] then return nil end
  -- It moved on from a time that was over, too: how far cannot be told from that.
  if tick_less(a[13], a[14], a[2], 0) and tick_less(a[13], a[14], b[4], b[5]) then return nil end
  local c = {b[1], a[2], a[3]}
  for i = 4, 12 do c[i] = a[i] end
  for i = 13, 21 do c[i] = b[i] end
  local us, rem = tick_add(b[13], b[14], a[13], a[14], p.n)
  c[13], c[14] = tick_sub(us, rem, b[4], b[5], p.n)
  us, rem = tick_add(b[19], b[20], a[19], a[20], p.n)
  c[19], c[20] = tick_sub(us, rem, b[10], b[11], p.n)
  return c
end

local function lower(p, s, base, c, actual)
  if not pacer_newest(s, c) then return end
  undo(p, s, c)
  local turn = s[9]
  if actual == 0 then
    c[1] = 0
    for i = 1, 9 do c[12 + i] = s[i] end
    c[21] = turn + 1
  else
    local again = charge(p, s, c[2], c[3], actual)
    for i = 1, 21 do c[i] = again[i] end
  end
  s[9] = turn + 1
end

-- Once nothing is behind it, it could give something back.
local function owes(p, c, actual, now)
  local after = {}
  for i = 1, 9 do after[i] = c[12 + i] end
  return actual < c[1] and fresh_at(p, after) > now
end

-- When it was first asked for.
local function since(c)
  return c[2]
end

local function pacer_raised(us, rem, xus, xrem, most, n)
  local rus, rrem = tick_add(us, rem, xus, xrem, n)
  rus, rrem = tick_min(rus, rrem, most, 0)
  return tick_max(rus, rrem, us, rem)
end

local function raise(p, s, base, c, actual, now)
  if not tick_less(now, 0, s[1], s[2]) then
    -- It has been quiet up to now, and no longer is.
    s[3], s[4], s[5] = pacer_leak(p, s, now)
    s[6] = max(s[6], now)
  end
  local aus, arem = cost(actual, p.n, p.p)
  local wus, wrem = cost(c[1], p.n, p.p)
  local xus, xrem = tick_sub(aus, arem, wus, wrem, p.n)
  -- What came free of a slot left the next one in the past.
  local nus, nrem = tick_max(s[1], s[2], max(c[3], now), 0)
  nus, nrem = pacer_raised(nus, nrem, xus, xrem, base + MAX_DEBT, p.n)
  local eus, erem = tick_max(s[7], s[8], now, 0)
  eus, erem = pacer_raised(eus, erem, xus, xrem, base + MAX_DEBT, p.n)
  -- Should the charge be undone, its own correction goes with it.
  local mus, mrem = tick_sub(nus, nrem, s[1], s[2], p.n)
  c[13], c[14] = tick_add(c[13], c[14], mus, mrem, p.n)
  mus, mrem = tick_sub(eus, erem, s[7], s[8], p.n)
  c[19], c[20] = tick_add(c[19], c[20], mus, mrem, p.n)
  s[1], s[2], s[7], s[8] = nus, nrem, eus, erem
  c[1] = actual
end

-- Single units that would pass at `at`: what is left of the burst, and the slots of this microsecond.
local function figures(p, s, now, at)
  local next, slots = tick_ceil(s[1], s[2]), 0
  if next < at then
    slots = 1
  elseif next == at then
    local gus, grem = tick_sub(at, 0, s[1], s[2], p.n)
    slots = brings(gus, grem, p.n, p.p) + 1
  end
  local free = 0
  if not tick_less(at, 0, s[1], s[2]) then
    local lus, lrem = pacer_leak(p, s, now)
    local eus, erem = tick_sub(s[7], s[8], at, 0, p.n)
    lus, lrem = tick_max(lus, lrem, eus, erem)
    lus, lrem = tick_sub(p.full_us, p.full_rem, lus, lrem, p.n)
    free = brings(lus, lrem, p.n, p.p)
  end
  return p.burst + div_ceil(p.n, p.p), free + slots, max(0, pacer_good_at(p, s) - at)
end

local function reconfigure(p, from, s, now, base)
  local lus, lrem = pacer_leak(from, s, now)
  local used = brings_up(lus, lrem, from.n, from.p)
  local aus, arem = tick_sub(s[7], s[8], base, 0, from.n)
  local ous, orem = cost(brings_up(aus, arem, from.n, from.p), p.n, p.p)
  ous, orem = tick_min(ous, orem, MAX_AHEAD + tick_ceil(p.full_us, p.full_rem), 0)
  s[1], s[2] = adopt(s[1], s[2], from.n, p.n)
  lus, lrem = cost(used, p.n, p.p)
  s[3], s[4] = tick_min(lus, lrem, p.full_us, p.full_rem)
  s[5], s[6] = 0, max(s[6], now)
  s[7], s[8] = tick_add(base, 0, ous, orem, p.n)
end

kinds.P = {
  takes = 4, size = 9, charge_size = 21, limit = limit, fill = fill, fresh = fresh, fresh_at = fresh_at,
  wait = wait, charge = charge, undo = undo, join = join, lower = lower, owes = owes, since = since, raise = raise,
  figures = figures, reconfigure = reconfigure,
}
