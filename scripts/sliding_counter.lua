-- Sliding counter: src/limit/sliding_counter.rs, in Lua.
-- Limit: {limit, window}. State: {start, current, previous, ...}, see windows.lua.
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
  windows.forget(s, 3, now, 2 * p.window)
  local before_start, before_current, before_previous = s[1], s[2], s[3]
  local start, current, previous = counter_advance(p, s, at)
  if at > now and start ~= before_start and fresh_at(p, s) > now then windows.push(s, 3) end
  s[1], s[2], s[3] = start, current + weight, previous
  return {weight, s[1], before_start, before_current, before_previous}
end

local function undo(p, s, c)
  if c[2] == c[3] then
    s[2] = max(0, s[2] - c[1])
  elseif not windows.pop(s, 3, c[3]) then
    s[1], s[2], s[3] = c[3], c[4], c[5]
  end
end

-- Of the same window.
local function join(p, a, b)
  if b[2] ~= b[3] or b[2] ~= a[2] then return nil end
  return {a[1] + b[1], a[2], a[3], a[4], a[5]}
end

local function counter_adjust(p, s, base, c, actual)
  actual = min(actual, COUNTER_MAX)
  local weight = c[1]
  for i = 1, #s, 3 do
    local count = (s[i] == c[2] and i + 1) or (s[i] == c[2] + p.window and i + 2)
    if count then
      s[count] = min(max(0, s[count] - c[1]) + actual, COUNTER_MAX)
      weight = actual
    end
  end
  c[1] = weight
end

local function figures(p, s, now, at)
  local start, current, previous = counter_advance(p, s, at)
  local used = current + counter_share(p, start, previous, at)
  return p.capacity, max(0, p.capacity - used),
    max(0, counter_fresh_at(p, start, current, previous) - at)
end

local function reconfigure(p, from, s, now, base)
  windows.clear(s, 3)
  if p.window == from.window then return end
  local start, current, previous = counter_advance(from, s, base)
  s[1] = aligned(base, p.window)
  s[2] = min(current + counter_share(from, start, previous, base), COUNTER_MAX)
  s[3] = 0
end

local function parse(text)
  return windows.parse(text, 3)
end

kinds.C = {
  takes = 2, charge_size = 5, limit = limit, parse = parse, fresh = fresh, fresh_at = fresh_at, wait = wait,
  charge = charge, undo = undo, join = join, figures = figures, reconfigure = reconfigure, lower = counter_adjust,
  raise = counter_adjust,
}
