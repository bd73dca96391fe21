-- A key as text: one Redis string with everything that is decided by arithmetic.
--   1;seen skew version booked blocked seq epoch epoch_until fence ticket held queued grace longest era;
--   limits;state;...;parked
-- limits is the parameters' text the state was last decided under; a state is its numbers; parked are
-- bookings with ',' between them, and a booking is "at seq epoch previous|charge|charge".
local FORMAT = '^1;([%d ]+) (%w*);([^;]*);(.*)$'

local function numbers(text)
  local list = {}
  for n in string.gmatch(text, '%d+') do list[#list + 1] = tonumber(n) end
  return list
end

local function spaced(list)
  local shown = {}
  for i = 1, #list do shown[i] = show(list[i]) end
  return table.concat(shown, ' ')
end

-- "T0 100 1 5000 0/S1 4": for each limit its kind, whether it counts calls, and its parameters.
local function parse_limits(text)
  local limits = {}
  for letter, per_call, rest in string.gmatch(text, '(%u)(%d)([^/]*)') do
    local limit = numbers(rest)
    limit.text = letter .. rest
    limit.kind = kinds[letter]
    limit.per_call = per_call == '1'
    limit.kind.limit(limit)
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

local function parse_booking(text)
  local booking = {charges = {}}
  for part in string.gmatch(text .. '|', '([^|]*)|') do
    local list = numbers(part)
    if not booking.at then
      booking.at, booking.seq, booking.epoch, booking.previous = list[1], list[2], list[3], list[4]
    else
      booking.charges[#booking.charges + 1] = #list > 0 and list
    end
  end
  return booking.previous and booking or nil
end

-- nil when the text is none of ours.
local function parse_key(text, count)
  local head, era, params, rest = string.match(text, FORMAT)
  if not head then return nil end
  local h = numbers(head)
  if #h ~= 14 then return nil end
  local key = {
    seen = h[1], skew = h[2], version = h[3], booked = h[4], blocked = h[5], seq = h[6],
    epoch = h[7], epoch_until = h[8], fence = h[9], ticket = h[10], held = h[11], queued = h[12],
    grace = h[13], longest = h[14], era = era,
    params = params, states = {}, parked = {},
  }
  local i = 0
  for part in string.gmatch(rest .. ';', '([^;]*);') do
    i = i + 1
    if i <= count then
      key.states[i] = numbers(part)
    else
      for one in string.gmatch(part, '[^,]+') do
        key.parked[#key.parked + 1] = parse_booking(one)
      end
    end
  end
  if i ~= count + 1 then return nil end
  return key
end

local function key_text(key)
  local parts = {
    '1',
    spaced({key.seen, key.skew, key.version, key.booked, key.blocked, key.seq, key.epoch,
      key.epoch_until, key.fence, key.ticket, key.held, key.queued, key.grace, key.longest})
      .. ' ' .. key.era,
    key.params,
  }
  for i, state in ipairs(key.states) do parts[3 + i] = spaced(state) end
  local parked = {}
  for i, booking in ipairs(key.parked) do parked[i] = booking_text(booking) end
  parts[#parts + 1] = table.concat(parked, ',')
  return table.concat(parts, ';')
end

-- Made by holders.lua where there is a semaphore.
local holders_of
