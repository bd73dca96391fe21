-- The limit that always admits. Its numbers are without bound.
local function empty()
  return {}
end

local function zero()
  return 0
end

local function charge()
  return false
end

local function figures()
  return math.huge, math.huge, 0
end

kinds.U = {
  takes = 0, size = 0, charge_size = 0, limit = empty, fresh = empty, fresh_at = zero, wait = zero,
  charge = charge, figures = figures,
}
