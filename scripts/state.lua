-- A key as text: one Redis string with everything that is decided by arithmetic.
--   1;seen skew version opened booked blocked seq epoch epoch_until;limits;state;...;parked
-- and with a semaphore
--   ;held queued dead fence ticket grace longest ends kept;era
-- (see holders.lua). limits is the parameters' text the state was last decided under, version and opened
-- are those of whoever brought it; a state is its numbers, unless its kind has a text of its own; parked
-- are bookings with ',' between them, and a booking is "at seq epoch previous|charge|...".
-- What was stored may be anybody's: it is checked before it is used. What comes with a call is ours.

-- Made by holders.lua where there is a semaphore.
local holders_of

-- "T0 100 1 5000 0/S1 4": for each limit its kind, whether it counts calls, and its parameters.
local function parse_limits(text)
  local limits, list = {}, holders_of and 5 or 2
  for letter, per_call, rest in string.gmatch(text, '(%u)(%d)([^/]*)') do
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
  local parts = {spaced({booking.at, booking.seq, booking.epoch, booking.previous})}
  for _, charge in ipairs(booking.charges) do
    parts[#parts + 1] = charge and spaced(charge) or ''
  end
  return table.concat(parts, '|')
end

local function parse_booking(text, limits)
  local booking = {charges = {}}
  for part in string.gmatch(text .. '|', '([^|]*)|') do
    local list = checked(part)
    if not list then return nil end
    if not booking.at then
      if #list ~= 4 then return nil end
      booking.at, booking.seq, booking.epoch, booking.previous = list[1], list[2], list[3], list[4]
    else
      local i = #booking.charges + 1
      if not limits[i] or (#list > 0 and #list ~= limits[i].kind.charge_size) then return nil end
      booking.charges[i] = #list > 0 and list
    end
  end
  return #booking.charges == #limits and booking or nil
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

-- nil when the text is none of ours.
local function parse_key(text, limits, holds)
  local parts, count = {}, #limits
  for part in string.gmatch(text .. ';', '([^;]*);') do parts[#parts + 1] = part end
  if #parts ~= count + (holds and 6 or 4) or parts[1] ~= '1' then return nil end
  local h = checked(parts[2], 9)
  local parked = parse_parked(parts[count + 4], limits)
  if not h or not parked then return nil end
  local key = {
    seen = h[1], skew = h[2], version = h[3], opened = h[4], booked = h[5], blocked = h[6],
    seq = h[7], epoch = h[8], epoch_until = h[9], params = parts[3], states = {}, parked = parked,
  }
  for i, limit in ipairs(limits) do
    local parse = limit.kind.parse or checked
    key.states[i] = parse(parts[3 + i], limit.kind.size)
    if not key.states[i] then return nil end
  end
  if holds then
    key.people = checked(parts[count + 5], 9)
    key.era = parts[count + 6]
    if not key.people then return nil end
  end
  return key
end

local function key_text(key, limits)
  local parts = {
    '1',
    spaced({key.seen, key.skew, key.version, key.opened, key.booked, key.blocked, key.seq, key.epoch,
      key.epoch_until}),
    key.params,
  }
  for i, state in ipairs(key.states) do parts[3 + i] = (limits[i].kind.text or spaced)(state) end
  local parked = {}
  for i, booking in ipairs(key.parked) do parked[i] = booking_text(booking) end
  parts[#parts + 1] = table.concat(parked, ',')
  if key.people then
    parts[#parts + 1] = spaced(key.people)
    parts[#parts + 1] = key.era
  end
  return table.concat(parts, ';')
end
