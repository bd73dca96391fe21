-- One call: a batch of operations on one key, in order, at one instant; written back once, and only if
-- something changed.
-- KEYS: 1 the key's text; with a semaphore three more, see holders.lua; then one for each sliding log, see
-- sliding_log.lua.
-- ARGV: 1 now in microseconds, or '' for the server's time; 2 not_after, 0 for none; 3 version of the
-- limits; 4 the limits; 5 when they were opened, by the server's clock; 0 or less: so long ago; with a
-- semaphore seven more, see holders.lua; then the operations:
--   P wait weights     book a time at most so far ahead; wait < 0 is without limit
--   U booking          give back a booking that is not due
--   K weights          look
--   S booking actual   settle
--   X                  make as new
--   Z span             admit nothing for so long
-- with a semaphore not P and U, but A, R, C and N, see holders.lua.
-- Reply: {server's time, the key's time, era, answer, ...}, an answer being
--   "letter index limit remaining retry_after reset_after fence position at|booking",
-- or {server's time} if that is past not_after.
local raw_now
if ARGV[1] == '' then
  local time = redis.call('TIME')
  raw_now = tonumber(time[1]) * 1000000 + tonumber(time[2])
else
  raw_now = tonumber(ARGV[1])
end
local not_after = tonumber(ARGV[2])
if not_after > 0 and raw_now > not_after then return {show(raw_now)} end

local version, limits = tonumber(ARGV[3]), parse_limits(ARGV[4])
local opened = tonumber(ARGV[5])
if opened <= 0 then opened = max(0, raw_now + opened) end
local arg = holders_of and 13 or 6
local key, known, now
local dirty, used = false, false

local function garbage()
  return redis.error_reply('LIMITERGARBAGE what is stored is not of a limiter; reset the key')
end

-- The key, or nothing; false if there is something else.
local function load()
  local stored = redis.pcall('GET', KEYS[1])
  if type(stored) == 'table' then return false end
  if not stored then return nil end
  local found = parse_key(stored, limits, holders_of ~= nil)
  if not found then return false end
  if found.params == ARGV[4] then return found end
  found.from = parse_limits(found.params)
  if not found.from or #found.from ~= #limits then return false end
  for i, limit in ipairs(limits) do
    if found.from[i].kind ~= limit.kind then return false end
  end
  return found
end

local function fresh()
  key = decide.fresh(limits, raw_now)
  key.seen, key.skew, key.version, key.opened, key.params = raw_now, 0, version, opened, ARGV[4]
end

-- What is stored beside the text, for the kinds that do so. False if something of it is not theirs.
local function load_more()
  for i, limit in ipairs(key.from or limits) do
    if limit.kind.load then
      key.states[i] = limit.kind.load(limit, known and key.states[i], raw_now + key.skew)
      if not key.states[i] then return false end
    end
  end
  return true
end

key = load()
local sound = key ~= false
known = key and true
if not key then fresh() end
if not (sound and load_more() and (not holders_of or holders_of.sound())) then
  if ARGV[arg] ~= 'X' then return garbage() end
  redis.call('DEL', unpack(KEYS))
  known = false
  fresh()
end

-- A clock that steps back: no time has passed, and it goes on from there.
now = raw_now + key.skew
if now < key.seen then
  key.skew, now, dirty, key.stepped = key.skew + key.seen - now, key.seen, true, true
end
key.seen = now

-- Of limits with other numbers those decide that have the higher version, or were opened later: whoever
-- lost once never wins again, so that nobody can mint anything by taking turns.
local newer = version > key.version or (version == key.version and opened > key.opened)
if newer then
  dirty = dirty or key.from ~= nil or version > key.version
  if key.from then decide.reconfigure(limits, key.from, key, now) end
  key.params, key.version, key.opened = ARGV[4], version, opened
elseif key.from then
  limits = key.from
end

local function answer(letter, index, retry, at, fence, position, booking)
  local limit, remaining, reset, which = decide.figures(limits, key, now, index)
  if limit == math.huge then limit = -1 end
  if remaining == math.huge then remaining = -1 end
  return string.format('%s %d %.0f %.0f %.0f %.0f %.0f %.0f %.0f|%s', letter, which, limit, remaining,
    retry, reset, fence or 0, position or 0, at or now, booking or '')
end

local function next_arg()
  arg = arg + 1
  return ARGV[arg - 1]
end

local seen_weights = {}

-- What each limit is asked for; whether that is nothing at all; and as it was asked. Not to be changed.
local function next_weights()
  local text = next_arg()
  local seen = seen_weights[text]
  if not seen then
    local asked = numbers(text)
    local weights, nothing = decide.weights(limits, asked)
    seen = {weights, nothing, asked}
    seen_weights[text] = seen
  end
  return seen[1], seen[2], seen[3]
end

local function refuse(outcome, index, at)
  if outcome == 'never' then return answer('N', index, -1) end
  return answer('D', index, max(1, at - now))
end

local ops = {}
local holders = holders_of and holders_of.begin(limits, key, known, now, answer, next_arg, next_weights, ops)

if not holders then
  function ops.P()
    local wait = tonumber(next_arg())
    local weights, nothing = next_weights()
    if nothing then return answer('O', nil, 0) end
    local outcome, index, at = decide.decide(limits, key, now, weights, nothing)
    if outcome == 'admit' or (outcome == 'later' and (wait < 0 or at <= now + wait)) then
      local booking = decide.commit(limits, key, now, at, weights)
      dirty = true
      return answer('O', nil, at - now, at, 0, 0, booking_text(booking))
    end
    return refuse(outcome, index, at)
  end

  function ops.U()
    local booking = parse_booking(next_arg(), limits)
    if not booking or booking.seq == 0 or booking.at <= now then return answer('S', nil, 0) end
    decide.cancel_rates(limits, key, now, booking)
    dirty = true
    return answer('O', nil, 0)
  end

  function ops.K()
    local weights, nothing = next_weights()
    local outcome, index, at = decide.decide(limits, key, now, weights, nothing)
    if outcome == 'admit' then return answer('O', nil, 0) end
    return refuse(outcome, index, at)
  end
end

function ops.S()
  local booking, actual = parse_booking(next_arg(), limits), tonumber(next_arg())
  if not booking or decide.is_reset(key, booking) then return answer('S', nil, 0) end
  decide.settle(limits, key, now, booking, actual)
  dirty = true
  return answer('O', nil, 0, now, 0, 0, booking_text(booking))
end

function ops.X()
  decide.reset(limits, key, now)
  if holders then holders.reset() end
  dirty = true
  return answer('O', nil, 0)
end

function ops.Z()
  decide.penalize(key, now, now + tonumber(next_arg()))
  dirty = true
  return answer('O', nil, 0)
end

local reply = {'', '', ''}
while ARGV[arg] do
  local letter = next_arg()
  used = used or letter ~= 'K'
  reply[#reply + 1] = ops[letter]()
end

-- A bucket that starts empty fills from its first use, so it is kept even if that was denied.
local starts_empty = false
for _, limit in ipairs(limits) do starts_empty = starts_empty or limit.empty end
local till = decide.fresh_at(limits, key)
if holders then
  local needed, changed = holders.finish(dirty)
  till, dirty = max(till, needed), dirty or changed
end
if dirty or (starts_empty and used and not known) then
  local forget = till <= now and not starts_empty and key.skew == 0
  local px = math.ceil(max(till - now, 0) / 1000) + 1000
  if not forget then
    redis.call('SET', KEYS[1], key_text(key, limits), 'PX', px)
  elseif known then
    redis.call('DEL', KEYS[1])
  end
  for i, limit in ipairs(limits) do
    if limit.kind.save then
      -- What is there without the text looks like a loss: it ends before.
      limit.kind.save(limit, forget and limit.kind.fresh() or key.states[i], px - 500)
    end
  end
end
reply[1], reply[2], reply[3] = show(raw_now), show(now), key.era or ''
return reply
