-- A key as text: one Redis string with everything that is decided by arithmetic.
--   1;kept seen;state;...;opened epoch skew booked blocked seq epoch_until;parked;version;limits
-- and with a semaphore after parked
--   held queued dead fence ticket grace longest ends kept;era;
-- (see holders.lua). The key is there until after kept, unless it gets lost. limits is the parameters' text
-- the state was last decided under, version and opened are those of whoever brought it; a state is its
-- numbers, unless its kind has a text of its own; parked are bookings with ',' between them, and a booking
-- is "at seq epoch previous|charge|...". Zeros at the end of a list are left out. What every key has, and
-- what a token bucket needs at least, is as wide as 2^53 is, so that fast.lua finds it.
-- What was stored may be anybody's: it is checked before it is used. What comes with a call is ours.

-- Made by holders.lua where there is a semaphore.
local holders_of

-- "T0 100 1 5000 0/S1 4": for each limit its kind, whether it counts calls, and its parameters.
local function parse_limits(text)
  local limits, list = {}, holders_of and 5 or 2
  for letter, per_call, rest in gmatch(text, '(%u)(%d)([^/]*)') do
    local kind, limit = kinds[letter], checked(rest)
    if not kind or not limit or #limit ~= kind.takes then return nil end
    limit.text = letter .. rest
    limit.kind = kind
    limit.per_call = per_call == '1'
    if kind.load then
      limit.list = KEYS[list]
      list = list + 1
    end
    kind.limit(limit)
    limits[#limits + 1] = limit
  end
  return limits
end

local function booking_text(booking)
  local text = spaced({booking.at, booking.seq, booking.epoch, booking.previous})
  for _, charge in ipairs(booking.charges) do text = text .. '|' .. (charge and spaced(charge) or '') end
  return text
end

local function parse_booking(text, limits)
  local parts = split(text, '|')
  local head = checked(parts[1], 4)
  if not head or #parts ~= #limits + 1 then return nil end
  local booking = {at = head[1], seq = head[2], epoch = head[3], previous = head[4], charges = {}}
  for i, limit in ipairs(limits) do
    local charge = checked(parts[i + 1])
    if not charge or (#charge > 0 and #charge ~= limit.kind.charge_size) then return nil end
    booking.charges[i] = #charge > 0 and charge
  end
  return booking
end

local function parse_parked(text, limits)
  local parked = {}
  for one in string.gmatch(text, '[^,]+') do
    local booking = parse_booking(one, limits)
    if not booking then return nil end
    parked[#parked + 1] = booking
  end
  return parked
end

-- nil when the text is none of ours. Its own limits are under `from` if they are others than these, whose
-- text is `mine`.
local function parse_key(text, limits, mine)
  local parts, count = split(text, ';'), #limits
  local last = count + (holders_of and 8 or 6)
  if #parts ~= last or parts[1] ~= '1' then return nil end
  local seen, head = checked(parts[2], 2), checked(parts[count + 3], 7, true)
  local version, parked = checked(parts[last - 1], 1), parse_parked(parts[count + 4], limits)
  if not seen or not head or not version or not parked then return nil end
  local key = {
    seen = seen[2], opened = head[1], epoch = head[2], skew = head[3], booked = head[4], blocked = head[5],
    seq = head[6], epoch_until = head[7], parked = parked, version = version[1], params = parts[last],
    states = {},
  }
  for i, limit in ipairs(limits) do
    local state = (limit.kind.parse or checked)(parts[2 + i], limit.kind.size, true)
    if not state then return nil end
    key.states[i] = state
  end
  if holders_of then
    key.people, key.era = checked(parts[count + 5], 9, true), parts[count + 6]
    if not key.people then return nil end
  end
  if key.params ~= mine then
    key.from = parse_limits(key.params)
    if not key.from or #key.from ~= count then return nil end
    for i, limit in ipairs(limits) do
      if key.from[i].kind ~= limit.kind then return nil end
    end
  end
  return key
end

local function key_text(key, limits, kept)
  local text = format('1;%016d %016d;', kept, key.seen)
  for i, state in ipairs(key.states) do text = text .. (limits[i].kind.text or trimmed)(state) .. ';' end
  text = text .. format('%016d %016d', key.opened, key.epoch)
  local more = trimmed({key.skew, key.booked, key.blocked, key.seq, key.epoch_until})
  if more ~= '' then text = text .. ' ' .. more end
  text = text .. ';'
  for i, booking in ipairs(key.parked) do text = text .. (i > 1 and ',' or '') .. booking_text(booking) end
  if key.people then text = text .. ';' .. trimmed(key.people) .. ';' .. key.era end
  return text .. ';' .. show(key.version) .. ';' .. key.params
end
