-- Semaphore: src/limit/semaphore.rs, in Lua; who holds it is in holders.lua.
-- Limit: {capacity}. State: {used}. Charge: {weight}.
local semaphore = {takes = 1, size = 1, charge_size = 1}

function semaphore.limit(p)
  p.capacity, p.holds = p[1], true
end

function semaphore.fresh()
  return {0}
end

function semaphore.fresh_at()
  return 0
end

-- -2: not before something comes back.
function semaphore.wait(p, s, now, at, weight)
  if weight > p.capacity then return -1 end
  if s[1] > p.capacity - weight then return -2 end
  return 0
end

function semaphore.charge(p, s, now, at, weight)
  s[1] = s[1] + weight
  return {weight}
end

function semaphore.figures(p, s)
  return p.capacity, max(0, p.capacity - s[1]), 0
end
