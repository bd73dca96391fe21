-- One call: a batch of operations on one key, in order, at one instant; written back once, and only if
-- something changed.
-- KEYS: 1 the key's text; with a semaphore three more, see holders.lua; then one for each sliding log, see
-- sliding_log.lua.
-- ARGV: 1 not_after, 0 for none; below 0: what time it is, if not the server's; 2 "version;limits"; 3 when
-- they were opened, by the server's clock; 0 or less: so long ago; with a semaphore eight more, see
-- holders.lua; then the operations:
--   T weights count        take, so often; B does the same, see fast.lua. Q does so there alone: it is S here
--   P wait weights         book a time at most so far ahead; wait < 0 is without limit
--   M wait weights         the same for who waits, who may get a slot that was given back; not while bookings are
--                          moved: then it answers when to ask
--   U booking              give back a booking that is not due
--   D booking              give back a booking that has not started, due or not, to be booked anew
--   K weights              look
--   V booking              take it back, if none was made after it; before all other operations, under the
--                          limits that it was made under
--   W n wait weights       book again what the n-th V took back: at the latest when it was, unless there is a
--                          penalty since
--   L                      look: until when nothing is admitted; 0 without a penalty
--   S booking actual       settle
--   X                      make as new
--   Z span                 admit nothing for so long
-- with a semaphore not T, B, P, M, U and D, but A, R, C and N, see holders.lua, and V names an id.
-- Reply: {server's time, the key's time, era, answer, ...}, an answer being
--   "letter index limit remaining retry_after reset_after fence position at|booking",
-- or {server's time} if that is past not_after; or that of fast.lua.
local version, params = match(ARGV[2], '^(%d+);(.*)$')
version = version + 0
local limits = parse_limits(params)
local opened = ARGV[3] + 0
if opened <= 0 then opened = max(0, raw_now + opened) end
local arg = holders_of and 12 or 4
local dirty, used = false, false

local known, key, now = stored and true, nil, nil
if known then key = type(stored) == 'string' and parse_key(stored, limits, ARGV[2]) end
local sound = key or not known

local function fresh()
  key = fresh_key(limits, raw_now)
  key.version, key.opened, key.params = version, opened, params
end

if not key then fresh() end

-- What is stored beside the text. False if something of it is none of ours.
local function load_more()
  for i, limit in ipairs(key.from or limits) do
    if limit.kind.load then
      key.states[i] = limit.kind.load(limit.rule, known and key.states[i], raw_now + key.skew)
      if not key.states[i] then return false end
    end
  end
  return not holders_of or holders_of.sound()
end

if not (sound and load_more()) then
  if ARGV[arg] ~= 'X' then
    return redis.error_reply('LIMITERGARBAGE what is stored is not of a limiter; reset the key')
  end
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

local function next_arg()
  arg = arg + 1
  return ARGV[arg - 1]
end

-- What was taken back to be booked again, in order, or false.
local lifted = {}

local function lift_next(limits)
  local what, done = next_arg(), false
  if holders_of then
    done = holders_of.lift(what, limits, key, now)
  else
    local booking = parse_booking(what, limits)
    done = booking and lift(limits, key, now, booking) and booking or false
  end
  lifted[#lifted + 1] = done
  dirty = dirty or done ~= false
  return done
end

local function starts_empty(limits)
  for _, limit in ipairs(limits) do
    if limit.rule.empty then return true end
  end
  return false
end

-- Of limits with other numbers those decide that have the higher version, or were opened later: whoever
-- lost once never wins again, so that nobody can mint anything by taking turns.
if version > key.version or (key.from and version == key.version and opened > key.opened) then
  if key.from then
    while ARGV[arg] == 'V' do
      arg = arg + 1
      lift_next(key.from)
    end
    if #lifted > 0 then repay(key.from, key, now) end
    reconfigure(limits, key.from, key, now)
  end
  key.params, key.version, key.opened, dirty = params, version, opened, true
elseif key.from then
  limits = key.from
end

-- Whether it was forgotten already makes no difference.
local begins, people = not known, key.people
if known and starts_empty(limits) and fresh_at(limits, key) <= now and not (people and people[1] + people[2] > 0) then
  forget(limits, key, now)
  begins = true
end

local shown_now = show(now)

local function answer(letter, index, retry, at, fence, position, booking)
  local limit, remaining, reset_after, which = figures(limits, key, now, index)
  if limit == math.huge then limit = -1 end
  if remaining == math.huge then remaining = -1 end
  return format('%s %d %d %d %d %d %d %d %s|%s', letter, which, limit, remaining, retry, reset_after,
    fence or 0, position or 0, at and at ~= now and show(at) or shown_now, booking or '')
end

local seen_weights = {}

-- What each limit is asked for; whether that is nothing at all; and as it was asked. Not to be changed.
local function next_weights()
  local text = next_arg()
  local seen = seen_weights[text]
  if not seen then
    local asked = numbers(text)
    local weights, nothing = weights_of(limits, asked)
    seen = {weights, nothing, asked}
    seen_weights[text] = seen
  end
  return seen[1], seen[2], seen[3]
end

-- To all clients of the prefix, about this key. The channel is named by src/redis/keys.rs, after the prefix in
-- the key's name. If it may not be published, they hear nothing.
local function tell_all(note)
  local prefix = match(KEYS[1], '^{(.*):[^:]*:[^:]*:[^:]*}:s$') or ''
  prefix = string.gsub(string.gsub(prefix, ':', '%%3a'), ';', '%%3b')
  redis.pcall('PUBLISH', prefix .. ':notes:penalties', note .. ' ' .. redis.sha1hex(KEYS[1]))
end

-- Something came back: who waits for a booked time may start earlier. Not told too often, and not while all
-- bookings are moved: until key.told.
local function tell_sooner()
  if key.booked > now and now >= key.told + 100000 then
    key.told = now
    tell_all('W')
  end
end

local function refuse(outcome, index, at)
  if outcome == 'never' then return answer('N', index, -1) end
  return answer('D', index, max(1, at - now))
end

-- Whether something was taken, and the answer.
local function book(wait, weights, nothing)
  if nothing then return false, answer('O', nil, 0) end
  local outcome, index, at = decide(limits, key, now, weights, nothing)
  if outcome == 'admit' or (outcome == 'later' and (wait < 0 or at <= now + wait)) then
    local booking = commit(limits, key, now, at, weights)
    return true, answer('O', nil, at - now, at, 0, 0, booking_text(booking))
  end
  return false, refuse(outcome, index, at)
end

local ops, reply = {}, {'', '', ''}
local holders = nil
for _, done in ipairs(lifted) do reply[#reply + 1] = answer(done and 'O' or 'S', nil, 0) end

if holders_of then
  holders = holders_of.begin(limits, key, known, now, answer, next_arg, next_weights, ops, tell_sooner,
    lifted)
else
  function ops.T()
    local weights, nothing = next_weights()
    local count, taken, text = next_arg() + 0, true, nil
    for n = 1, count do
      -- Whoever comes after one that took nothing finds everything as that did.
      if taken then taken, text = book(0, weights, nothing) end
      dirty = dirty or taken
      if n < count then reply[#reply + 1] = text end
    end
    return text
  end

  function ops.B()
    local text = ops.T()
    arg = arg + 3
    return text
  end

  function ops.Q()
    arg = arg + 5
    return answer('S', nil, 0)
  end

  function ops.P()
    local wait = next_arg() + 0
    local taken, text = book(wait, next_weights())
    dirty = dirty or taken
    return text
  end

  function ops.M()
    local wait = ARGV[arg] + 0
    if now < key.told and (wait < 0 or now + wait >= key.blocked) then
      arg = arg + 2
      return answer('Q', nil, key.told - now)
    end
    local from = arg
    arg = arg + 1
    local weights = next_weights()
    local slot = not_after >= 0 and given_back(key, now, wait, weights)
    if slot then
      dirty = true
      return answer('O', nil, slot.at - now, slot.at, 0, 0, booking_text(slot))
    end
    arg = from
    return ops.P()
  end

  local function give_back(after)
    local booking = parse_booking(next_arg(), limits)
    if not booking or booking.seq == 0 or booking.at <= after then return answer('S', nil, 0) end
    cancel_rates(limits, key, now, booking)
    tell_sooner()
    dirty = true
    return answer('O', nil, 0)
  end

  function ops.D()
    return give_back(-1)
  end

  function ops.U()
    return give_back(now)
  end

  function ops.W()
    local was, wait = lifted[next_arg() + 0], next_arg() + 0
    local weights = next_weights()
    if not was then return answer('S', nil, 0) end
    if #key.owed > 0 then repay(limits, key, now) end
    local outcome, index, at = decide_again(limits, key, now, was.at, weights)
    if outcome == 'never' or outcome == 'far' or (wait >= 0 and at > max(was.at, now + wait)) then
      return refuse(outcome, index, at)
    end
    local booking = commit(limits, key, now, at, weights, was)
    return answer('O', nil, at - now, at, 0, 0, booking_text(booking))
  end

  function ops.K()
    local weights, nothing = next_weights()
    local outcome, index, at = decide(limits, key, now, weights, nothing)
    if outcome == 'admit' then return answer('O', nil, 0) end
    return refuse(outcome, index, at)
  end
end

function ops.V()
  return answer(lift_next(limits) and 'O' or 'S', nil, 0)
end

function ops.S()
  local booking, actual = parse_booking(next_arg(), limits), next_arg() + 0
  if not booking then return answer('S', nil, 0) end
  follow(key, booking)
  if is_reset(key, booking) then return answer('S', nil, 0) end
  local less = false
  for _, charge in ipairs(booking.charges) do less = less or (charge and charge[1] > actual) end
  settle(limits, key, now, booking, actual)
  if less then
    owe(limits, key, now, booking, actual)
    tell_sooner()
  end
  dirty = true
  return answer('O', nil, 0, now, 0, 0, booking_text(booking))
end

-- Who has booked a time before it asks anew.
function ops.X()
  reset(limits, key, now)
  if holders then holders.reset() end
  key.told, dirty = min(key.told, now), true
  tell_all('R ' .. show(key.epoch))
  return answer('O', nil, 0, now, key.epoch)
end

function ops.L()
  return answer('O', nil, 0, key.blocked > now and key.blocked or 0)
end

-- Who has booked a time before the penalty's end hears of it. So that all can give back what they booked,
-- nobody books anything for a moment: of clocks that are moved by hand, for no time at all.
function ops.Z()
  local span = next_arg() + 0
  penalize(key, now, now + span)
  if holders then
    holders.put_off()
  elseif key.booked > now and not_after >= 0 then
    key.told = max(key.told, now + min(max(100000, floor(span / 8)), 1000000, floor(span / 2)))
  end
  dirty = true
  tell_all('P ' .. show(key.blocked))
  return answer('O', nil, 0, key.blocked)
end

while ARGV[arg] do
  local letter = next_arg()
  used = used or (letter ~= 'K' and letter ~= 'L')
  local text = ops[letter]()
  reply[#reply + 1] = text
end

-- A bucket that starts empty fills from its first use, so it is kept even if that was denied.
local empty = starts_empty(limits)
local till = fresh_at(limits, key)
if holders then
  local needed, changed = holders.finish(dirty)
  till, dirty = max(till, needed), dirty or changed
end
if dirty or (empty and used and begins) then
  local forget = till <= now and not empty and key.skew == 0
  till = max(till, now)
  local px = math.ceil((till - now) / 1000) + 2000
  if not forget then
    redis.call('SET', KEYS[1], key_text(key, limits, till + 1000000), 'PX', px)
  elseif known then
    redis.call('DEL', KEYS[1])
  end
  for i, limit in ipairs(limits) do
    if limit.kind.save then
      -- What is there without the text looks like a loss: it ends before.
      limit.kind.save(limit.rule, forget and limit.kind.fresh() or key.states[i], px - 1500)
    end
  end
end
reply[1], reply[2], reply[3] = show(raw_now), shown_now, key.era or ''
return reply
