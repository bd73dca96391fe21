-- Sliding log: src/limit/sliding_log.rs, in Lua.
-- Limit: {limit, window}. State: {time, weight, time, weight, ...} in order. Charge: {weight, at}.
local LOG_MAX = 1125899906842624

local sliding_log = {takes = 2, charge_size = 2}

function sliding_log.limit(p)
  p.capacity, p.window = p[1], p[2]
end

function sliding_log.fresh()
  return {}
end

function sliding_log.fresh_at(p, s)
  if #s == 0 then return 0 end
  return s[#s - 1] + p.window
end

local function log_total(s)
  local total = 0
  for i = 2, #s, 2 do total = total + s[i] end
  return total
end

function sliding_log.wait(p, s, now, at, weight)
  if weight > p.capacity then return -1 end
  local must_leave = log_total(s) - (p.capacity - weight)
  local i = 1
  while must_leave > 0 do
    must_leave = must_leave - s[i + 1]
    i = i + 2
  end
  if i == 1 then return 0 end
  return max(0, s[i - 2] + p.window - at)
end

function sliding_log.charge(p, s, now, at, weight)
  local gone = 0
  while s[gone + 1] and s[gone + 1] + p.window <= now do gone = gone + 2 end
  if gone > 0 then
    local n = #s
    for i = 1, n do s[i] = s[i + gone] end
  end
  local n = #s
  if n > 0 and s[n - 1] == at then
    s[n] = s[n] + weight
  else
    s[n + 1], s[n + 2] = at, weight
  end
  return {weight, at}
end

local function log_adjust(p, s, base, c, actual)
  for i = 1, #s, 2 do
    if s[i] == c[2] then
      local total = log_total(s)
      local weight = min(c[1], s[i + 1])
      actual = min(actual, max(0, LOG_MAX - (total - weight)))
      s[i + 1] = s[i + 1] - weight + actual
      if s[i + 1] == 0 then
        table.remove(s, i)
        table.remove(s, i)
      end
      c[1] = actual
      return
    end
  end
end

sliding_log.lower, sliding_log.raise = log_adjust, log_adjust

function sliding_log.undo(p, s, c)
  log_adjust(p, s, 0, {c[1], c[2]}, 0)
end

function sliding_log.figures(p, s, now, at)
  local used, oldest = 0, nil
  for i = 1, #s, 2 do
    if s[i] + p.window > at then
      used, oldest = used + s[i + 1], oldest or s[i]
    end
  end
  return p.capacity, max(0, p.capacity - used), oldest and oldest + p.window - at or 0
end
