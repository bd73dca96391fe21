-- Sliding counter: src/limit/sliding_counter.rs, in Lua.
-- Limit: {limit, window}. State: {start, current, previous}.
-- Charge: {weight, start, before_start, before_current, before_previous}.
local COUNTER_MAX = 1125899906842624

local function limit(n)
  return {capacity = n[1], window = n[2]}
end

local function aligned(at, window)
  return at - fmod(at, window)
end

local function fresh(p, now)
  return {aligned(now, p.window), 0, 0}
end

local function counter_fresh_at(p, start, current, previous)
  if current > 0 then return start + 2 * p.window end
  if previous > 0 then return start + p.window end
  return 0
end

local function fresh_at(p, s)
  return counter_fresh_at(p, s[1], s[2], s[3])
end

local function counter_advance(p, s, at)
  local start = aligned(at, p.window)
  if start <= s[1] then return s[1], s[2], s[3] end
  if start == s[1] + p.window then return start, 0, s[2] end
  return start, 0, 0
end

-- The share of the previous window that still counts.
local function counter_share(p, start, previous, at)
  local left = p.window - min(max(0, at - start), p.window)
  local whole, rest = muldiv(previous, left, p.window)
  if rest > 0 then return whole + 1 end
  return whole
end

-- How far into a window the one before it has faded to `room`.
local function counter_faded(p, previous, room)
  if previous <= room then return 0 end
  return p.window - muldiv(room, p.window, previous)
end

local function wait(p, s, now, at, weight)
  if weight > p.capacity then return -1 end
  local start, current, previous = counter_advance(p, s, at)
  local room = p.capacity - weight
  local fits = start + p.window + counter_faded(p, current, room)
  if current <= room then
    fits = min(fits, start + counter_faded(p, previous, room - current))
  end
  return max(0, fits - at)
end

local function charge(p, s, now, at, weight)
  local before_start, before_current, before_previous = s[1], s[2], s[3]
  s[1], s[2], s[3] = counter_advance(p, s, at)
  s[2] = s[2] + weight
  return {weight, s[1], before_start, before_current, before_previous}
end

local function undo(p, s, c)
  if c[2] == c[3] then
    s[2] = max(0, s[2] - c[1])
    return
  end
  local current = c[4]
  if c[2] == c[3] + p.window then current = s[3] end
  s[1], s[2], s[3] = c[3], current, c[5]
end

local function counter_adjust(p, s, base, c, actual)
  actual = min(actual, COUNTER_MAX)
  local i
  if c[2] == s[1] then i = 2 elseif c[2] + p.window == s[1] then i = 3 else return end
  s[i] = min(max(0, s[i] - c[1]) + actual, COUNTER_MAX)
  c[1] = actual
end

local function figures(p, s, now, at)
  local start, current, previous = counter_advance(p, s, at)
  local used = current + counter_share(p, start, previous, at)
  return p.capacity, max(0, p.capacity - used),
    max(0, counter_fresh_at(p, start, current, previous) - at)
end

local function reconfigure(p, from, s, now, base)
  if p.window == from.window then return end
  local start, current, previous = counter_advance(from, s, base)
  s[1] = aligned(base, p.window)
  s[2] = min(current + counter_share(from, start, previous, base), COUNTER_MAX)
  s[3] = 0
end

kinds.C = {
  takes = 2, size = 3, charge_size = 5, limit = limit, fresh = fresh, fresh_at = fresh_at, wait = wait,
  charge = charge, undo = undo, figures = figures, reconfigure = reconfigure, lower = counter_adjust,
  raise = counter_adjust,
}
