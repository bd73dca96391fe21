-- Semaphore: src/limit/semaphore.rs, in Lua; who holds it is in holders.lua.
-- Limit: {capacity}. State: {used}. Charge: {weight}.
local function limit(n)
  return {capacity = n[1]}
end

local function fresh()
  return {0}
end

local function fresh_at()
  return 0
end

-- -2: not before something comes back.
local function wait(p, s, now, at, weight)
  if weight > p.capacity then return -1 end
  if s[1] > p.capacity - weight then return -2 end
  return 0
end

local function charge(p, s, now, at, weight)
  s[1] = s[1] + weight
  return {weight}
end

local function figures(p, s)
  return p.capacity, max(0, p.capacity - s[1]), 0
end

kinds.S = {
  takes = 1, size = 1, charge_size = 1, holds = true, limit = limit, fresh = fresh, fresh_at = fresh_at,
  wait = wait, charge = charge, figures = figures,
}
