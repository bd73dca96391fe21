-- The limit that always admits. Its numbers are without bound.
local unlimited = {takes = 0, size = 0, charge_size = 0}

function unlimited.limit() end

function unlimited.fresh()
  return {}
end

function unlimited.fresh_at()
  return 0
end

function unlimited.wait()
  return 0
end

function unlimited.charge()
  return false
end

function unlimited.figures()
  return math.huge, math.huge, 0
end
