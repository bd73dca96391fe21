-- Windows that bookings ahead have left behind while they still count: src/limit/windows.rs, in Lua. A state is
-- the latest window, `width` numbers of which the first is its start, and after it those, the earliest first.
local WINDOWS_MOST = 8

local windows = {}

function windows.parse(text, width)
  local plain = checked(text, width)
  if plain then return plain end
  local list = numbers(text)
  if #list == 0 or fmod(#list, width) > 0 or #list > width * (WINDOWS_MOST + 1) then return nil end
  return checked(text, #list)
end

-- Remembers the latest, which a charge that may be undone leaves behind.
function windows.push(s, width)
  if #s > width * WINDOWS_MOST then return end
  for i = 1, width do s[#s + 1] = s[i] end
end

-- Moves back to the window that began at `start`, with what was corrected in it. False: it is not there.
function windows.pop(s, width, start)
  local last = #s - width
  if last == 0 or s[last + 1] ~= start then return false end
  for i = width, 1, -1 do s[i], s[last + i] = s[last + i], nil end
  return true
end

-- Forgets those behind that began `life` ago.
function windows.forget(s, width, now, life)
  while s[width + 1] and s[width + 1] + life <= now do
    for _ = 1, width do table.remove(s, width + 1) end
  end
end

-- No booking from before is undone any more.
function windows.clear(s, width)
  for i = #s, width + 1, -1 do s[i] = nil end
end
