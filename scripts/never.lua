-- The limit that never admits.
local never = {takes = 0, size = 0, charge_size = 0}

function never.limit() end

function never.fresh()
  return {}
end

function never.fresh_at()
  return 0
end

function never.wait()
  return -1
end

function never.figures()
  return 0, 0, 0
end
