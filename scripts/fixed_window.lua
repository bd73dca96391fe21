-- Fixed window: src/limit/fixed_window.rs, in Lua.
-- Limit: {limit, window, by_clock}. State: {start, used, ...}, see windows.lua.
-- Charge: {weight, start, before_start, before_used}.
local WINDOW_MAX = 1125899906842624

local function limit(n)
  return {capacity = n[1], window = n[2], by_clock = n[3] == 1}
end

local function window_start(p, at)
  if p.by_clock then return at - fmod(at, p.window) end
  return at
end

local function fresh(p, now)
  return {window_start(p, now), 0}
end

local function fresh_at(p, s)
  if s[2] == 0 then return 0 end
  return s[1] + p.window
end

local function window_advance(p, s, at)
  if s[2] == 0 or at >= s[1] + p.window then return window_start(p, at), 0 end
  return s[1], s[2]
end

local function wait(p, s, now, at, weight)
  if weight > p.capacity then return -1 end
  local start, used = window_advance(p, s, at)
  if used <= p.capacity - weight then return 0 end
  return max(0, start + p.window - at)
end

local function charge(p, s, now, at, weight)
  windows.forget(s, 2, now, p.window)
  local before_start, before_used = s[1], s[2]
  local start, used = window_advance(p, s, at)
  if at > now and start ~= before_start and fresh_at(p, s) > now then windows.push(s, 2) end
  s[1], s[2] = start, used + weight
  return {weight, start, before_start, before_used}
end

local function undo(p, s, c)
  if c[2] == c[3] then
    s[2] = max(0, s[2] - c[1])
  elseif not windows.pop(s, 2, c[3]) then
    s[1], s[2] = c[3], c[4]
  end
end

-- Of the same window.
local function join(p, a, b)
  if b[2] ~= b[3] or b[2] ~= a[2] then return nil end
  return {a[1] + b[1], a[2], a[3], a[4]}
end

local function window_adjust(p, s, base, c, actual)
  actual = min(actual, WINDOW_MAX)
  for i = 1, #s, 2 do
    if s[i] == c[2] then
      s[i + 1] = min(max(0, s[i + 1] - c[1]) + actual, WINDOW_MAX)
      c[1] = actual
      return
    end
  end
end

local function figures(p, s, now, at)
  local start, used = window_advance(p, s, at)
  local reset = 0
  if used > 0 then reset = max(0, start + p.window - at) end
  return p.capacity, max(0, p.capacity - used), reset
end

local function reconfigure(p, from, s, now, base)
  s[1], s[2] = window_advance(from, s, base)
  if p.by_clock or s[1] + p.window <= base then s[1] = window_start(p, base) end
  windows.clear(s, 2)
end

local function parse(text)
  return windows.parse(text, 2)
end

kinds.W = {
  takes = 3, charge_size = 4, limit = limit, parse = parse, fresh = fresh, fresh_at = fresh_at, wait = wait,
  charge = charge, undo = undo, join = join, figures = figures, reconfigure = reconfigure, lower = window_adjust,
  raise = window_adjust,
}
