-- A key as text: one Redis string with everything that is decided by arithmetic.
--   1;kept opened epoch;version;limits;seen;state;...
-- and if any of it is still of use, or there is a semaphore
--   ;skew booked blocked seq epoch_until told fill;parked
-- and with a semaphore
--   ;held queued dead fence ticket grace longest ends kept ahead void moves since booked;era
-- (see holders.lua). The key is there until after kept, unless it gets lost. limits is the parameters' text
-- the state was last decided under, version and opened are those of whoever brought it; a state is its
-- numbers, unless its kind has a text of its own; a booking is "at seq epoch previous|charge|..."; parked is
-- "first>booking" with ',' between them, owed "actual~booking". What every key has, and what a token bucket
-- has at least, is as wide as 2^53 is, so that fast.lua finds it.
-- What was stored may be anybody's: it is checked before it is used. What comes with a call is ours.

-- Made by holders.lua where there is a semaphore.
local holders_of

local function split(text, mark)
  local parts, count, from = {}, 1, 1
  local at = find(text, mark, 1, true)
  while at do
    parts[count], count, from = sub(text, from, at - 1), count + 1, at + 1
    at = find(text, mark, from, true)
  end
  parts[count] = sub(text, from)
  return parts
end

-- "T0 100 1 5000 0/S1 4": for each limit its kind, whether it counts calls, and its parameters.
local function parse_limits(text)
  local limits, list = {}, holders_of and 5 or 2
  for letter, per_call, rest in gmatch(text, '(%u)(%d) ?([^/]*)') do
    local kind = kinds[letter]
    local n = kind and checked(rest, kind.takes)
    if not n then return nil end
    limits[#limits + 1] = {
      kind = kind, rule = kind.limit(n, KEYS[list]), text = rest, per_call = per_call == '1',
      holds = kind.holds,
    }
    if kind.load then list = list + 1 end
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
    local charge = parts[i + 1] ~= '' and checked(parts[i + 1], limit.kind.charge_size)
    if charge == nil then return nil end
    booking.charges[i] = charge
  end
  return booking
end

local function parse_parked(text, limits)
  local parked = {}
  for first, one in gmatch(text, '(%d+)>([^,]+)') do
    local booking = parse_booking(one, limits)
    if not booking then return nil end
    booking.first = first + 0
    parked[#parked + 1] = booking
  end
  return parked
end

local function parse_owed(text, limits)
  local owed = {}
  for actual, one in gmatch(text, '(%d+)~([^,]+)') do
    local booking = parse_booking(one, limits)
    if not booking then return nil end
    owed[#owed + 1] = {booking = booking, actual = actual + 0}
  end
  return owed
end

-- nil when the text is none of ours. Its own limits are under `from` if they are others than these, whose
-- text and version are `mine`.
local function parse_key(text, limits, mine)
  local opened, epoch, from = match(text, '^1;%d+ (%d+) (%d+);()')
  if not from then return nil end
  local version, params = match(mine, '^(%d+);(.*)$')
  local key = blank_key({}, epoch + 0, 0)
  key.opened, key.params = opened + 0, params
  if sub(text, from, from + #mine) == mine .. ';' then
    from = from + #mine + 1
  else
    version, key.params, from = match(text, '^(%d+);([^;]*);()', from)
    key.from = from and parse_limits(key.params)
    if not key.from or #key.from ~= #limits then return nil end
    for i, limit in ipairs(limits) do
      if key.from[i].kind ~= limit.kind then return nil end
    end
  end
  key.version = version + 0
  local parts, count = split(sub(text, from), ';'), #limits
  local seen = checked(parts[1], 1)
  -- A version that no limit can have would decide for ever.
  if not seen or key.version > 4294967295 or max(key.opened, key.epoch) >= TOO_LARGE then return nil end
  key.seen = seen[1]
  for i, limit in ipairs(limits) do
    local state = parts[1 + i] and (limit.kind.parse or checked)(parts[1 + i], limit.kind.size)
    if not state then return nil end
    key.states[i] = state
  end
  if #parts == count + 1 and not holders_of then return key end
  if #parts ~= count + (holders_of and 6 or 4) then return nil end
  local more = checked(parts[count + 2], 7)
  -- Both are of the limits that they were made under.
  key.parked = parse_parked(parts[count + 3], key.from or limits)
  key.owed = parse_owed(parts[count + 4], key.from or limits)
  if not more or not key.parked or not key.owed then return nil end
  key.skew, key.booked, key.blocked, key.seq, key.epoch_until, key.told, key.fill = unpack(more)
  if holders_of then
    key.people, key.era = checked(parts[count + 5], 14), parts[count + 6]
    if not key.people or #key.era ~= 16 or find(key.era, '%X') then return nil end
  end
  return key
end

local function key_text(key, limits, kept)
  local text, parked, owed = '', '', ''
  for i, state in ipairs(key.states) do text = text .. ';' .. (limits[i].kind.text or spaced)(state) end
  for i, one in ipairs(key.parked) do
    parked = parked .. (i > 1 and ',' or '') .. show(one.first) .. '>' .. booking_text(one)
  end
  for _, one in ipairs(key.booked > key.seen and key.owed or {}) do
    if still_owes(limits, key.seen, one) then
      owed = owed .. (owed ~= '' and ',' or '') .. show(one.actual) .. '~' .. booking_text(one.booking)
    end
  end
  local ahead = max(key.booked, key.blocked, key.epoch_until, key.told) > key.seen
  if key.people or ahead or key.skew + key.seq > 0 or parked ~= '' then
    text = text .. format(';%d %d %d %d %d %d %d;%s;%s', key.skew, key.booked, key.blocked, key.seq, key.epoch_until,
      key.told, key.fill, parked, owed)
  end
  if key.people then text = text .. ';' .. spaced(key.people) .. ';' .. key.era end
  return format('1;%016d %016d %016d;%d;%s;%016d%s', kept, key.opened, key.epoch, key.version, key.params,
    key.seen, text)
end
