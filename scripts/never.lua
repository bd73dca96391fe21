-- The limit that never admits.
local function empty()
  return {}
end

local function fresh_at()
  return 0
end

local function wait()
  return -1
end

local function figures()
  return 0, 0, 0
end

kinds.N = {
  takes = 0, size = 0, charge_size = 0, limit = empty, fresh = empty, fresh_at = fresh_at, wait = wait,
  figures = figures,
}
