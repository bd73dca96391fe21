-- One call: a batch of operations on one key, in order, at one instant; written back once, and only if
-- something changed.
-- KEYS: 1 the key's text; with a semaphore also 2 holders, 3 queue, 4 waiters' lives, 5 who they are,
-- 6 the dead (see holders.lua).
-- ARGV: 1 now in microseconds, or '' for the server's time; 2 not_after, 0 for none; 3 version of the
-- limits; 4 the limits; 5 a fresh era; 6 the caller's channel; 7 claim, 8 allowance, 9 life of a waiter, in
-- microseconds; 10 the era the caller knows, or ''; 11 the usual lease; then the operations:
--   A id wait lease weights    acquire, or ask again; wait < 0 is without limit
--   P wait weights             book a time
--   K weights                  look
--   R id dead                  release; dead > 0 keeps the id out for so long
--   C id dead booking          end a wait, or a booking that is not due
--   N id lease era weights     renew
--   S id booking actual        settle
--   X                          make as new
--   Z span                     admit nothing for so long
-- Reply: {server time, the key's time, era, answer, ...}, an answer being
--   "letter index limit remaining retry_after reset_after fence position at|booking".
local raw_now
if ARGV[1] == '' then
  local time = redis.call('TIME')
  raw_now = tonumber(time[1]) * 1000000 + tonumber(time[2])
else
  raw_now = tonumber(ARGV[1])
end
local not_after = tonumber(ARGV[2])
if not_after > 0 and raw_now > not_after then return {show(raw_now), '0', 'late'} end

local version = tonumber(ARGV[3])
local limits = parse_limits(ARGV[4])
local key, now
local dirty = false

local function garbage()
  return redis.error_reply('LIMITERGARBAGE what is stored is not a limiter key; reset it')
end

local stored = redis.pcall('GET', KEYS[1])
local is_text = type(stored) == 'string'
if is_text then key = parse_key(stored, #limits) end
local resets = ARGV[12] == 'X'
if not key and (is_text or type(stored) == 'table') and not resets then return garbage() end
local known = key ~= nil

if not key then
  key = decide.fresh(limits, raw_now)
  key.seen, key.skew, key.version, key.fence, key.ticket = raw_now, 0, version, 0, 0
  key.held, key.queued, key.grace, key.longest = 0, 0, 0, tonumber(ARGV[11])
  key.era, key.params = ARGV[5], ARGV[4]
  -- Whoever knows another era knows of permits that are lost with it.
  if ARGV[10] ~= '' then key.grace, dirty = raw_now + key.longest, true end
end

-- A clock that steps back: no time has passed, and it goes on from there.
now = raw_now + key.skew
if now < key.seen then
  key.skew, now, dirty = key.skew + key.seen - now, key.seen, true
end
key.seen = now

if key.params ~= ARGV[4] then
  local from = parse_limits(key.params)
  if #from ~= #limits then return garbage() end
  if version >= key.version then
    decide.reconfigure(limits, from, key, now)
    key.params, key.version, dirty = ARGV[4], version, true
  else
    limits = from
  end
elseif version > key.version then
  key.version, dirty = version, true
end

local function answer(letter, index, retry, at, fence, position, booking)
  local limit, remaining, reset = decide.figures(limits, key, now, index)
  if limit == math.huge then limit = -1 end
  if remaining == math.huge then remaining = -1 end
  return letter .. ' ' .. spaced({(index or 0), limit, remaining, retry, reset, fence or 0,
    position or 0, at or now}) .. '|' .. (booking and booking_text(booking) or '')
end

local holders = holders_of and holders_of(limits, key, known, now, ARGV[5], answer)
if holders == false then return garbage() end

local function patience(wait)
  if wait < 0 then return math.huge end
  return now + wait
end

-- Grants a booking, or says why not.
local function attempt(weights, nothing, till)
  if nothing then return answer('O', nil, 0) end
  local outcome, index, at = decide.decide(limits, key, now, weights, nothing)
  if outcome == 'never' then return answer('N', index, -1) end
  if outcome == 'admit' or (outcome == 'later' and at <= till) then
    local booking = decide.commit(limits, key, now, at, weights)
    dirty = true
    return nil, booking
  end
  return answer('D', index, max(1, at - now))
end

local ops = {}

function ops.P(next)
  local till = patience(tonumber(next()))
  local weights, nothing = decide.weights(limits, numbers(next()))
  local refusal, booking = attempt(weights, nothing, till)
  if refusal then return refusal end
  return answer('O', nil, booking.at - now, booking.at, 0, 0, booking)
end

function ops.K(next)
  local weights, nothing = decide.weights(limits, numbers(next()))
  if holders then return holders.peek(weights, nothing) end
  local outcome, index, at = decide.decide(limits, key, now, weights, nothing)
  if outcome == 'admit' then return answer('O', nil, 0) end
  if outcome == 'never' then return answer('N', index, -1) end
  return answer('D', index, max(1, at - now))
end

function ops.A(next)
  local id, wait, lease = next(), tonumber(next()), tonumber(next())
  local weights, nothing = decide.weights(limits, numbers(next()))
  if holders then return holders.acquire(id, wait, lease, weights, nothing) end
  local refusal, booking = attempt(weights, nothing, patience(wait))
  if refusal then return refusal end
  return answer('O', nil, booking.at - now, booking.at, 0, 0, booking)
end

function ops.R(next)
  local id, dead = next(), tonumber(next())
  return holders.release(id, dead)
end

function ops.C(next)
  local id, dead, text = next(), tonumber(next()), next()
  if holders then return holders.cancel(id, dead) end
  local booking = parse_booking(text)
  if not booking or booking.seq == 0 or booking.at <= now then return answer('S', nil, 0) end
  decide.cancel_rates(limits, key, now, booking)
  dirty = true
  return answer('O', nil, 0)
end

function ops.N(next)
  local id, lease, era = next(), tonumber(next()), next()
  local weights = decide.weights(limits, numbers(next()))
  return holders.renew(id, lease, era, weights)
end

function ops.S(next)
  local id, text, actual = next(), next(), tonumber(next())
  local booking = parse_booking(text)
  if not booking then return answer('S', nil, 0) end
  decide.settle(limits, key, now, booking, actual)
  dirty = true
  return answer('O', nil, 0, now, 0, 0, booking)
end

function ops.X()
  if holders then holders.reset() end
  decide.reset(limits, key, now)
  if holders then holders.pump() end
  dirty = true
  return answer('O', nil, 0)
end

function ops.Z(next)
  decide.penalize(key, now, now + tonumber(next()))
  dirty = true
  return answer('O', nil, 0)
end

local reply = {}
local at = 12
local function next()
  at = at + 1
  return ARGV[at - 1]
end
while ARGV[at] do
  local op = next()
  reply[#reply + 1] = ops[op](next)
end

-- A bucket that starts empty fills from its first use, so it is kept even if that was denied.
local empty_start = false
for _, limit in ipairs(limits) do empty_start = empty_start or limit.empty end
local till = decide.fresh_at(limits, key)
if holders then
  local needed, changed = holders.finish()
  till, dirty = max(till, needed), dirty or changed
end
if dirty or (empty_start and not known) then
  if till <= now and not empty_start and key.skew == 0 then
    redis.call('DEL', KEYS[1])
  else
    redis.call('SET', KEYS[1], key_text(key), 'PX', show(math.ceil(max(till - now, 0) / 1000) + 1000))
  end
end
table.insert(reply, 1, key.era)
table.insert(reply, 1, show(now))
table.insert(reply, 1, show(raw_now))
return reply
