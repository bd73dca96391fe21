-- Semaphore: who holds permits and who waits for them, over all processes.
-- KEYS: 2 what ends, 'h' and the id of a permit, 'w' and that of a wait, or 'd' and one that was given up
-- while an earlier request for it may still be under way: scored by when that is over. 3 the queue, ids by
-- ticket: first in, first out; before those who wait, those who are granted and whose time had not come. 4 who they are: by id, "weights;fence;channel;deadline;renewed;booking": weights
-- are what it holds, or what it asked for; deadline is that of a wait (0: none), also of one that was granted;
-- renewed is 1 if its process renews it as long as it is held; booking is what a granted id took, after a '!'
-- if it has given that back to be booked anew.
-- ARGV: 4 the caller's longest lease; 5 claim, 6 allowance, 7 life of a wait, in microseconds; 8 the
-- caller's channel; 9 the era of the permits it holds here, or ''; 10 a fresh era; 11 is 1 if PUBLISH tells
-- when nobody hears: in a cluster others than this server's own listeners may. Operations:
--   A id wait lease weights   acquire, or ask again
--   R id dead                 release; dead > 0 keeps the id out for so long
--   C id dead                 end a wait, or return the grant that came before
--   N id lease era weights    renew
--   V id                      take back what it has booked of rates, see main.lua
-- A lease below 0 is one that is not renewed in the background.
-- A grant out of the queue is a claim: it is over soon unless its process asks for it again, and sooner if
-- nobody hears of it: then the process is gone, or asks for its waits before they end. A confirmed
-- holder has an allowance on top of its lease, for a server's clock that steps forward.
--
-- Any of the four keys may get lost. Their sizes must agree with the key's text, else all begins anew in
-- another era: who still holds has one lease to say so, and until then nobody else is admitted.

-- Most that one call grants to others, and most permits that it looks at for a hint.
local MOST = 64
-- Most that one call moves of what is booked.
local MOST_MOVED = 64
-- So many times that much one call ends. Whoever waits is told to ask again at once if there is more.
local ROUNDS = 16
-- A clock that stepped back by more than a day may repeat fencing numbers.
local DAY = 86400000000
-- What nobody holds any more is forgotten so much later: of a clock that then steps back by less, fencing
-- numbers grow all the same.
local STEP = 30000000

-- key.people: how many hold, wait and are kept out; the last fencing number and ticket; the end of the
-- grace; the longest lease; by when all ends; until when the keys are kept. How many are in the queue that are
-- granted; the last fencing number that a reset has ended; and while those in the queue that are granted are
-- moved, how, since when, and how many of them are booked.
local HELD, QUEUED, DEAD, FENCE, TICKET, GRACE, LONGEST, ENDS, KEPT = 1, 2, 3, 4, 5, 6, 7, 8, 9
local AHEAD, VOID, MOVES, SINCE, BOOKED = 10, 11, 12, 13, 14
-- They give back what they took of rates, the last first; are booked, the first first; or wait again, the last
-- first.
local UNDO, BOOK, REQUEUE = 1, 2, 3

local sizes = {}

holders_of = {}

-- Whether the keys hold what they should.
function holders_of.sound()
  for i, command in ipairs({'ZCARD', 'ZCARD', 'HLEN'}) do
    local size = redis.pcall(command, KEYS[i + 1])
    if type(size) == 'table' then return false end
    sizes[i] = size
  end
  return true
end

local function who_is(id, count)
  local text = redis.call('HGET', KEYS[4], id) or ''
  local weights, fence, to, deadline, renewed, booking =
    match(text, '^([^;]*);(%d+);([^;]*);(%d+);([01]);([^;]*)$')
  local list = weights and (checked(weights, 1) or checked(weights, count))
  if list then
    return {weights = list, fence = tonumber(fence), channel = to, deadline = tonumber(deadline),
      renewed = renewed == '1', booking = booking}
  end
  local nobody = {weights = {}, fence = 0, channel = '', deadline = 0, renewed = false, booking = ''}
  for i = 1, count do nobody.weights[i] = 0 end
  return nobody
end

-- From when on it is granted.
local function starts(one)
  return tonumber(match(one.booking, '^!?(%d+)')) or 0
end

local function is_unbooked(one)
  return sub(one.booking, 1, 1) == '!'
end

-- Takes back what a permit has booked of rates. Answers who holds it and what it was, or false.
function holders_of.lift(id, limits, key, now)
  if key.people and key.people[MOVES] > 0 then return false end
  local one = redis.call('ZSCORE', KEYS[2], 'h' .. id) and who_is(id, #limits)
  local booking = one and parse_booking(one.booking, limits)
  return booking and lift(limits, key, now, booking) and {id, one, booking} or false
end

-- `lifted`: what was taken back, to be booked again.
function holders_of.begin(limits, key, known, now, answer, next_arg, next_weights, ops, tell_sooner, lifted)
  local E, Q, I = KEYS[2], KEYS[3], KEYS[4]
  local lease, claim, allowance = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  local life, channel, known_era = tonumber(ARGV[7]), ARGV[8], ARGV[9]
  local call = redis.call
  local people = key.people or {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  local notes, unheard, told, begun, changed, unswept = {}, {}, {}, {}, false, false
  -- Nobody moves up before those who were there first are booked again.
  local at_once = #lifted == 0
  local semaphore
  for i, limit in ipairs(limits) do
    if limit.holds then semaphore = semaphore or i end
  end

  local function forget_all()
    call('DEL', E, Q, I)
    for i, limit in ipairs(limits) do
      if limit.holds then key.states[i][1] = 0 end
    end
    people[HELD], people[QUEUED], people[DEAD], people[KEPT] = 0, 0, 0, 0
    people[AHEAD], people[MOVES], changed = 0, 0, true
  end

  local function begin_anew()
    local last = people[ENDS]
    if not known then
      last = call('ZRANGE', E, -1, -1, 'WITHSCORES')[2]
      last = last and tonumber(last) or now + people[LONGEST]
    end
    forget_all()
    key.era, people[ENDS] = ARGV[10], 0
    -- What would be over by now anyway is no loss.
    if last > now then people[GRACE] = max(now + people[LONGEST], min(last, now + MAX_AHEAD)) end
  end

  key.people = people
  -- Ends that were set by the clock as it was are set again.
  if key.stepped then people[KEPT] = 0 end
  if lease > people[LONGEST] then people[LONGEST] = lease end
  if not known then
    key.era = ARGV[10]
    if known_era ~= '' then people[GRACE], changed = now + people[LONGEST], true end
  end
  local counted = people[HELD] + people[QUEUED]
  if sizes[1] ~= counted + people[DEAD] or sizes[2] ~= people[QUEUED] + people[AHEAD]
    or sizes[3] ~= counted then
    begin_anew()
    for i in ipairs(lifted) do lifted[i] = false end
  end

  -- Sees to it that a key that is made now, or may have been, gets an end.
  local function ends(member, at)
    if people[HELD] + people[QUEUED] + people[DEAD] == 0 then begun[2] = true end
    people[ENDS] = max(people[ENDS], at)
    changed = true
    return call('ZADD', E, show(at), member)
  end

  local function score(letter, id)
    return call('ZSCORE', E, letter .. id)
  end

  local function who(id)
    return who_is(id, #limits)
  end

  local function remember(id, one)
    if people[HELD] + people[QUEUED] == 0 then begun[4] = true end
    call('HSET', I, id, format('%s;%d;%s;%d;%d;%s', spaced(one.weights), one.fence, one.channel, one.deadline,
      one.renewed and 1 or 0, one.booking))
  end

  local function join_queue(id)
    if people[QUEUED] + people[AHEAD] == 0 then begun[3] = true end
    people[TICKET] = people[TICKET] + 1
    call('ZADD', Q, show(people[TICKET]), id)
  end

  -- A permit whose time has come, or that is over.
  local function leave_queue(id)
    local rank = people[MOVES] > 0 and call('ZRANK', Q, id)
    if call('ZREM', Q, id) == 1 then
      people[AHEAD], changed = people[AHEAD] - 1, true
      if rank and rank < people[BOOKED] then people[BOOKED] = people[BOOKED] - 1 end
    end
  end

  local function drop_holder(id, one)
    call('ZREM', E, 'h' .. id)
    call('HDEL', I, id)
    unheard[id] = nil
    people[HELD] = people[HELD] - 1
    if people[AHEAD] > 0 then leave_queue(id) end
    -- What a reset has ended is counted no more.
    for i, limit in ipairs(one.fence > people[VOID] and limits or {}) do
      if limit.holds then
        local state = key.states[i]
        state[1] = people[HELD] > 0 and max(0, state[1] - (one.weights[i] or 0)) or 0
      end
    end
    changed = true
  end

  -- Its time is not known as long as it is moved.
  local function is_moving(one)
    if people[MOVES] == 0 then return false end
    return is_unbooked(one) or (people[MOVES] ~= BOOK and starts(one) > people[SINCE])
  end

  -- When a permit ends, and whose it is. What a reset has ended goes when it is met.
  local function holder(id)
    local till = score('h', id)
    local one = till and who(id)
    if one and one.fence <= people[VOID] and not is_moving(one) then
      drop_holder(id, one)
      return nil
    end
    return till, one
  end

  -- `stays`: it has a place in the queue as a permit.
  local function drop_waiter(id, stays)
    if not stays then call('ZREM', Q, id) end
    call('ZREM', E, 'w' .. id)
    call('HDEL', I, id)
    people[QUEUED], changed = people[QUEUED] - 1, true
  end

  -- Makes it a holder, until its time after the booking's. `queued`: it is in the queue.
  local function hold(id, one, booking, span, queued)
    people[FENCE] = max(people[FENCE] + 1, now)
    one.fence, one.booking = people[FENCE], booking_text(booking)
    remember(id, one)
    ends('h' .. id, max(now, booking.at) + span)
    people[HELD] = people[HELD] + 1
    if booking.at > now then
      if not queued then join_queue(id) end
      people[AHEAD] = people[AHEAD] + 1
    end
    return one.booking
  end

  local function verdict(weights)
    local outcome, index, at = decide(limits, key, now, weights, false)
    local stands = now < people[GRACE] or people[MOVES] > 0
    if stands and outcome ~= 'never' then return 'release', semaphore, at end
    return outcome, index, at
  end

  local function tell(to, letter, id)
    if to ~= '' then notes[#notes + 1] = {to, letter .. ' ' .. id, id} end
  end

  -- Strictly in order: only the head is ever granted.
  local function pump()
    for _ = 1, MOST do
      if people[QUEUED] == 0 or now < people[GRACE] or people[MOVES] > 0 then return end
      local head = call('ZRANGE', Q, people[AHEAD], people[AHEAD])[1]
      local one = who(head)
      local alive = score('w', head)
      local late = one.deadline > 0 and one.deadline < now
      local weights, outcome, _, at
      if alive and tonumber(alive) > now and not late then
        weights = weights_of(limits, one.weights)
        outcome, _, at = verdict(weights)
        if outcome == 'release' then return end
      end
      local passes = outcome and outcome ~= 'never' and outcome ~= 'far'
        and not (one.deadline > 0 and at > one.deadline)
      drop_waiter(head, passes and at > now)
      if not passes then
        tell(one.channel, outcome == 'never' and 'N' or 'D', head)
      else
        local booking = commit(limits, key, now, max(at, now), weights)
        one.weights = weights
        hold(head, one, booking, claim, true)
        tell(one.channel, 'G', head)
        unheard[head] = alive
      end
    end
  end

  local function of_rates(weights)
    local rates = {}
    for i, limit in ipairs(limits) do rates[i] = limit.holds and 0 or weights[i] end
    return rates
  end

  -- Of the semaphores it holds its part all the while.
  local function book_again(id, one, was, at, rates)
    local booking = commit(limits, key, now, at, rates, was)
    for i, limit in ipairs(limits) do
      if limit.holds then booking.charges[i] = was.charges[i] end
    end
    one.booking = booking_text(booking)
    remember(id, one)
    return one.booking
  end

  -- Permits whose time has come need no place in the queue.
  local function prune()
    for _ = 1, min(MOST, people[AHEAD]) do
      local first = call('ZRANGE', Q, 0, 0)[1]
      if starts(who(first)) > now then return end
      leave_queue(first)
    end
  end

  local function give_back_last()
    if people[BOOKED] == 0 then
      people[MOVES] = BOOK
      if #key.owed > 0 then repay(limits, key, now) end
      return
    end
    local id = call('ZRANGE', Q, people[BOOKED] - 1, people[BOOKED] - 1)[1]
    local one = who(id)
    local booking = starts(one) > people[SINCE] and parse_booking(one.booking, limits)
    if not booking then return leave_queue(id) end
    cancel_rates(limits, key, now, booking)
    one.booking = '!' .. one.booking
    remember(id, one)
    people[BOOKED] = people[BOOKED] - 1
  end

  local function book_next()
    if people[BOOKED] == people[AHEAD] then
      people[MOVES] = 0
      return
    end
    local id = call('ZRANGE', Q, people[BOOKED], people[BOOKED])[1]
    local one = who(id)
    local was = is_unbooked(one) and parse_booking(sub(one.booking, 2), limits)
    if not was then return leave_queue(id) end
    local rates = of_rates(one.weights)
    local outcome, _, at = decide(limits, key, now, rates, false)
    if outcome == 'never' or outcome == 'far' or (one.deadline > 0 and at > one.deadline) then
      drop_holder(id, one)
      tell(one.channel, 'D', id)
      return
    end
    local till = tonumber(score('h', id))
    book_again(id, one, was, at, rates)
    ends('h' .. id, max(till, till + at - was.at))
    people[BOOKED] = people[BOOKED] + 1
  end

  local function requeue_last()
    if people[AHEAD] == 0 then
      people[MOVES] = 0
      return
    end
    local id = call('ZRANGE', Q, people[AHEAD] - 1, people[AHEAD] - 1)[1]
    local one = who(id)
    if not is_moving(one) then return drop_holder(id, one) end
    one.fence, one.booking = 0, ''
    remember(id, one)
    call('ZREM', E, 'h' .. id)
    ends('w' .. id, now + life)
    people[HELD], people[AHEAD], people[QUEUED] = people[HELD] - 1, people[AHEAD] - 1, people[QUEUED] + 1
  end

  local steps = {give_back_last, book_next, requeue_last}

  -- Moves on what is moved, so many steps a call, whosever call it is. Until that is done nobody else is granted
  -- anything.
  local function move()
    for _ = 1, MOST_MOVED do
      if people[MOVES] == 0 then return end
      steps[people[MOVES]]()
      changed = true
    end
  end

  -- Answers whether there may be more.
  local function end_some()
    local over = call('ZRANGEBYSCORE', E, '-inf', show(now), 'LIMIT', 0, MOST)
    for _, member in ipairs(over) do
      local letter, id = sub(member, 1, 1), sub(member, 2)
      if letter == 'h' then
        drop_holder(id, who(id))
      elseif letter == 'w' then
        drop_waiter(id)
      else
        call('ZREM', E, member)
        people[DEAD], changed = people[DEAD] - 1, true
      end
    end
    return #over == MOST
  end

  local function sweep()
    if people[ENDS] == 0 then return end
    for _ = 1, ROUNDS do
      if not end_some() then return end
    end
    unswept = true
  end

  -- The ends of those permits that have started and are not renewed among the MOST that end first, if not too
  -- many waits and ids that are kept out are between them; and what they hold.
  local function first_ends()
    local found, seen, from = {}, 0, 0
    local all = min(4 * MOST, people[HELD] + people[QUEUED] + people[DEAD])
    while seen < MOST and from < all do
      local members = call('ZRANGE', E, from, from + MOST - 1, 'WITHSCORES')
      for n = 1, #members, 2 do
        if seen < MOST and sub(members[n], 1, 1) == 'h' then
          local one = who(sub(members[n], 2))
          seen = seen + 1
          if not one.renewed and starts(one) <= now and one.fence > people[VOID] then found[#found + 1] = {tonumber(members[n + 1]), one.weights} end
        end
      end
      from = from + MOST
    end
    return found
  end

  -- All but the semaphores: when they would let it pass.
  local function soonest(weights)
    local rates, nothing = {}, true
    for i, limit in ipairs(limits) do
      rates[i] = limit.holds and 0 or weights[i]
      nothing = nothing and rates[i] == 0
    end
    if nothing then return base_of(key, now) end
    local _, _, at = decide(limits, key, now, rates, false)
    return max(at, now)
  end

  -- Until so much that is held has ended that it would pass, and all else lets it; of more than MOST permits
  -- not before the last of those has.
  local function release_hint_anew(weights)
    if now < people[GRACE] or people[MOVES] > 0 then
      return max(1, max(people[GRACE], soonest(weights)) - now)
    end
    local used, ends = {}, first_ends()
    local hint = ends[MOST] and ends[MOST][1] - now or lease
    for i, limit in ipairs(limits) do used[i] = limit.holds and key.states[i][1] end
    for _, one in ipairs(ends) do
      local held, freed = one[2], 0
      for i, limit in ipairs(limits) do
        if limit.holds then
          freed = freed + (held[i] or 0)
          key.states[i][1] = max(0, key.states[i][1] - (held[i] or 0))
        end
      end
      local outcome, _, at = decide(limits, key, one[1], weights, false)
      if freed > 0 and outcome ~= 'release' then
        hint = at - now
        break
      end
    end
    for i, limit in ipairs(limits) do
      if limit.holds then key.states[i][1] = used[i] end
    end
    return max(1, hint, soonest(weights) - now)
  end

  -- Of equal calls one is enough, as long as nothing changes.
  local hints = {}
  local function release_hint(weights)
    if changed then return release_hint_anew(weights) end
    local text = spaced(weights)
    hints[text] = hints[text] or release_hint_anew(weights)
    return hints[text]
  end

  local function refuse(outcome, index, at, weights)
    if outcome == 'never' then return answer('N', index, -1) end
    if outcome == 'release' then return answer('D', index, release_hint(weights)) end
    return answer('D', index, max(1, at - now))
  end

  -- As long as anybody waits, a newcomer does too.
  local function verdict_last(weights)
    local outcome, index, at = verdict(weights)
    if people[QUEUED] > 0 and outcome ~= 'never' and outcome ~= 'release' then
      return 'release', semaphore, at
    end
    return outcome, index, at
  end

  -- Its end comes no earlier than it was: a copy of an older request may come after the one that its holder
  -- believes in, and of a shorter lease the answer may get lost. Who asked for less lets go by itself.
  local function granted(id, one, span, till)
    local booking = parse_booking(one.booking, limits)
    local at = booking and booking.at or now
    ends('h' .. id, max(till, max(now, at) + span + allowance))
    unheard[id], told[id] = nil, true
    return answer('O', nil, max(0, at - now), at, one.fence, 0, one.booking)
  end

  local function queued(id)
    ends('w' .. id, now + life)
    return answer('Q', nil, unswept and 1 or 0, now, 0, call('ZRANK', Q, id) - people[AHEAD])
  end

  local function next_lease()
    local span = tonumber(next_arg())
    return math.abs(span), span > 0
  end

  function ops.A()
    local id, wait = next_arg(), tonumber(next_arg())
    local span, renewed = next_lease()
    local weights, nothing, asked = next_weights()
    if nothing then return answer('O', nil, 0) end
    if span > people[LONGEST] then people[LONGEST] = span end
    if score('d', id) then return answer('X', nil, 0) end
    local till, holds = holder(id)
    if till and is_moving(holds) then return answer('Q', nil, 1) end
    if till then return granted(id, holds, span, tonumber(till)) end
    local outcome, index, at = verdict_last(weights)
    if score('w', id) then
      if outcome ~= 'never' then return queued(id) end
      drop_waiter(id)
      pump()
    end
    local latest = wait < 0 and math.huge or now + wait
    local one = {weights = asked, fence = 0, channel = channel, deadline = wait < 0 and 0 or latest,
      renewed = renewed, booking = ''}
    if outcome == 'admit' or (outcome == 'later' and at <= latest) then
      local booking = commit(limits, key, now, at, weights)
      one.weights = weights
      local text = hold(id, one, booking, span + allowance)
      return answer('O', nil, at - now, at, people[FENCE], 0, text)
    end
    if outcome ~= 'release' or wait == 0 or soonest(weights) > latest then
      return refuse(outcome, index, at, weights)
    end
    join_queue(id)
    remember(id, one)
    local reply = queued(id)
    people[QUEUED] = people[QUEUED] + 1
    return reply
  end

  function ops.K()
    local weights, nothing = next_weights()
    if nothing then return answer('O', nil, 0) end
    local outcome, index, at = verdict_last(weights)
    if outcome == 'admit' then return answer('O', nil, 0) end
    return refuse(outcome, index, at, weights)
  end

  local function keep_out(id, span)
    if span > 0 and ends('d' .. id, now + span) == 1 then people[DEAD] = people[DEAD] + 1 end
  end

  function ops.R()
    local id, dead = next_arg(), tonumber(next_arg())
    keep_out(id, dead)
    local till, one = holder(id)
    if not till then return answer('S', nil, 0) end
    drop_holder(id, one)
    pump()
    return answer('O', nil, 0)
  end

  function ops.C()
    local id, dead = next_arg(), tonumber(next_arg())
    keep_out(id, dead)
    if score('w', id) then
      drop_waiter(id)
      pump()
      return answer('O', nil, 0)
    end
    local till, one = holder(id)
    if not till then return answer('S', nil, 0) end
    drop_holder(id, one)
    local booking = parse_booking(one.booking, limits)
    if booking and booking.seq > 0 and booking.at > now then
      cancel_rates(limits, key, now, booking)
      tell_sooner()
    end
    pump()
    return answer('R', nil, 0)
  end

  function ops.W()
    local it, wait = lifted[next_arg() + 0], tonumber(next_arg())
    local weights = next_weights()
    if not it or not score('h', it[1]) then return answer('S', nil, 0) end
    if #key.owed > 0 then repay(limits, key, now) end
    local id, one, was = unpack(it)
    local rates = of_rates(weights)
    local outcome, index, at = decide_again(limits, key, now, was.at, rates)
    if outcome == 'never' or outcome == 'far' or (wait >= 0 and at > max(was.at, now + wait)) then
      drop_holder(id, one)
      pump()
      return refuse(outcome, index, at, weights)
    end
    local text = book_again(id, one, was, at, rates)
    return answer('O', nil, at - now, at, one.fence, 0, text)
  end

  local function fits(weights)
    for i, limit in ipairs(limits) do
      if limit.holds and key.states[i][1] + weights[i] > limit.rule.capacity then return false end
    end
    return true
  end

  function ops.N()
    local id = next_arg()
    local span, renewed = next_lease()
    local era = next_arg()
    local weights = next_weights()
    if span > people[LONGEST] then people[LONGEST] = span end
    local till, holds = holder(id)
    if till and is_moving(holds) then
      ends('h' .. id, max(tonumber(till), max(now, starts(holds)) + span + allowance))
      return answer('Q', nil, 1)
    end
    if till then return granted(id, holds, span, tonumber(till)) end
    if era == key.era or score('d', id) or not (now < people[GRACE] or fits(weights)) then
      return answer('S', nil, 0)
    end
    -- The state was lost, not the lease: a holder that says so in time is one again.
    if score('w', id) then drop_waiter(id) end
    local booking = {at = now, seq = 0, epoch = key.epoch, previous = 0, charges = {}}
    for i, limit in ipairs(limits) do
      booking.charges[i] = false
      if limit.holds and weights[i] > 0 then
        key.states[i][1] = key.states[i][1] + weights[i]
        booking.charges[i] = {weights[i]}
      end
    end
    local one = {weights = weights, channel = channel, deadline = 0, renewed = renewed}
    local text = hold(id, one, booking, span + allowance)
    return answer('O', nil, 0, now, people[FENCE], 0, text)
  end

  local holders = {}

  -- What is booked to start in a penalty, and what is behind it, is booked anew in its order, whosever it is.
  function holders.put_off()
    if people[MOVES] == 0 then
      prune()
      local first = key.booked > now and people[AHEAD] > 0 and call('ZRANGE', Q, 0, 0)[1]
      if not first or starts(who(first)) >= key.blocked then return end
      people[BOOKED] = people[AHEAD]
    end
    if people[MOVES] == 0 or people[MOVES] == BOOK then people[MOVES], people[SINCE] = UNDO, now end
    move()
    pump()
  end

  -- All permits end; who waits is decided anew, and first those whose booked time had not come: they go back
  -- to the head of the queue. The era stays, so that a holder's renewal finds that out.
  function holders.reset()
    people[VOID], people[GRACE], changed = people[FENCE], 0, true
    if people[AHEAD] > 0 then
      if people[MOVES] ~= UNDO then people[SINCE] = now end
      people[MOVES] = REQUEUE
    end
    key.epoch_until = max(key.epoch_until, now + people[LONGEST] + allowance)
    move()
    pump()
  end

  -- Sees to the keys' ends and to the notes. Answers until when the key is needed, and whether anything
  -- changed.
  function holders.finish(dirty)
    if not at_once then
      pump()
    end
    if not changed and not dirty then return 0, false end
    if people[MOVES] == 0 then prune() end
    local counts = people[HELD] + people[QUEUED]
    -- A longer lease that was asked for once is of no meaning any more.
    if counts + people[DEAD] == 0 then people[ENDS], people[KEPT], people[LONGEST] = 0, 0, lease end
    local renew = people[ENDS] > people[KEPT]
    if renew then people[KEPT] = people[ENDS] + people[LONGEST] end
    if people[KEPT] > 0 then
      local px = show(math.ceil((people[KEPT] - now) / 1000) + 1000)
      if (renew or begun[2]) then call('PEXPIRE', E, px) end
      if (renew or begun[3]) and people[QUEUED] + people[AHEAD] > 0 then call('PEXPIRE', Q, px) end
      if (renew or begun[4]) and counts > 0 then call('PEXPIRE', I, px) end
    end
    -- Whoever may not publish is no reason to stop half way: the heartbeat makes it good.
    for _, note in ipairs(notes) do
      local id = note[3]
      -- This call's answer tells it already.
      if not told[id] then
        local heard, till = redis.pcall('PUBLISH', note[1], note[2]), unheard[id]
        local claimed = heard == 0 and till and ARGV[11] == '1' and score('h', id)
        if claimed then call('ZADD', E, show(min(tonumber(till), tonumber(claimed))), 'h' .. id) end
      end
    end
    local till = people[GRACE]
    if people[FENCE] > 0 then till = max(till, people[FENCE] + STEP + min(key.skew, DAY)) end
    -- The text outlives the rest: what is left alone looks like a loss.
    if people[KEPT] > 0 then till = max(till, people[KEPT] + 1000000) end
    return till, changed
  end

  sweep()
  move()
  if at_once then
    pump()
  end
  return holders
end
