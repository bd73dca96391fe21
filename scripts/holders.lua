-- Semaphore: who holds permits and who waits for them, over all processes.
-- holders: permit id -> when it ends. queue: id -> ticket number; first in, first out. lives: waiting id
-- -> when its process counts as dead. who: id -> "weights;fence;channel;deadline;booking", the deadline
-- being that of a wait (0: none) and the booking what a granted id took. dead: ids that were given up
-- while an earlier request for them may still be under way.
-- A grant out of the queue is a claim: it ends soon unless its process asks for it again. Confirmed
-- holders have an allowance on top of their lease, for a server clock that steps forward.
local MOST = 64

holders_of = function(limits, key, known, now, era, answer)
  local H, Q, W, I, D = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
  local claim, allowance, life = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
  local channel = ARGV[6]
  local call = redis.call
  local holders, told = {}, {}
  local changed = false

  local counts = {}
  for i, command in ipairs({'ZCARD', 'ZCARD', 'ZCARD', 'HLEN', 'ZCARD'}) do
    local count = redis.pcall(command, KEYS[i + 1])
    if type(count) == 'table' then return false end
    counts[i] = count
  end
  local whole = counts[1] == key.held and counts[2] == key.queued and counts[3] == key.queued
    and counts[4] == key.held + key.queued
  if not whole then
    -- Something of ours is gone. Who still holds has one lease to say so; until then nobody is admitted.
    call('DEL', H, Q, W, I)
    for i, limit in ipairs(limits) do
      if limit.holds then key.states[i][1] = 0 end
    end
    key.era, key.grace, changed = era, now + key.longest, true
  end

  local function score(set, id)
    local found = call('ZSCORE', set, id)
    return found and tonumber(found)
  end

  local function who(id)
    local text = call('HGET', I, id)
    local weights, fence, to, deadline, booking = string.match(text, '^([^;]*);(%d+);([^;]*);(%d+);(.*)$')
    return {weights = numbers(weights), fence = tonumber(fence), channel = to,
      deadline = tonumber(deadline), booking = booking ~= '' and parse_booking(booking) or nil}
  end

  local function remember(id, one)
    call('HSET', I, id, spaced(one.weights) .. ';' .. show(one.fence) .. ';' .. one.channel .. ';'
      .. show(one.deadline) .. ';' .. (one.booking and booking_text(one.booking) or ''))
    changed = true
  end

  local function tell(to, letter, id)
    if to ~= '' then told[#told + 1] = {to, letter .. ' ' .. id} end
  end

  local function give_back(weights)
    for i, limit in ipairs(limits) do
      if limit.holds then key.states[i][1] = max(0, key.states[i][1] - weights[i]) end
    end
  end

  local function drop_holder(id, one)
    one = one or who(id)
    give_back(one.weights)
    call('ZREM', H, id)
    call('HDEL', I, id)
    changed = true
    return one
  end

  local function drop_waiter(id)
    call('ZREM', Q, id)
    call('ZREM', W, id)
    call('HDEL', I, id)
    changed = true
  end

  local function hold(id, one, at, ends)
    key.fence = max(key.fence + 1, now)
    one.fence = key.fence
    call('ZADD', H, show(max(now, at) + ends), id)
    remember(id, one)
  end

  -- The rates alone: when they would let it pass.
  local function rates_at(weights)
    local rates, nothing = {}, true
    for i, limit in ipairs(limits) do
      rates[i] = limit.holds and 0 or weights[i]
      if rates[i] > 0 then nothing = false end
    end
    local _, _, at = decide.decide(limits, key, now, rates, nothing)
    return max(at, now)
  end

  local function first_semaphore()
    for i, limit in ipairs(limits) do
      if limit.holds then return i end
    end
  end

  local function verdict(weights, queue_counts)
    local outcome, index, at = decide.decide(limits, key, now, weights, false)
    if outcome ~= 'never' and (now < key.grace or (queue_counts and call('ZCARD', Q) > 0)) then
      return 'release', first_semaphore(), at
    end
    return outcome, index, at
  end

  -- Strictly in order: only the head is ever granted.
  local function pump()
    for _ = 1, MOST do
      local head = call('ZRANGE', Q, 0, 0)[1]
      if not head then return end
      local one = who(head)
      local outcome, _, at = verdict(one.weights, false)
      if outcome == 'release' then return end
      if outcome == 'never' or outcome == 'far' or (one.deadline > 0 and at > one.deadline) then
        drop_waiter(head)
        tell(one.channel, outcome == 'never' and 'N' or 'D', head)
      else
        call('ZREM', Q, head)
        call('ZREM', W, head)
        one.booking = decide.commit(limits, key, now, max(at, now), one.weights)
        hold(head, one, one.booking.at, claim - allowance)
        tell(one.channel, 'G', head)
      end
    end
  end

  local function sweep()
    local over = call('ZRANGEBYSCORE', H, '-inf', '(' .. show(now - allowance), 'LIMIT', 0, MOST)
    for _, id in ipairs(over) do drop_holder(id) end
    over = call('ZRANGEBYSCORE', W, '-inf', '(' .. show(now), 'LIMIT', 0, MOST)
    for _, id in ipairs(over) do drop_waiter(id) end
    call('ZREMRANGEBYSCORE', D, '-inf', '(' .. show(now))
  end

  -- Until so much that is held has ended that it would pass.
  local function release_hint(weights)
    if now < key.grace then return key.grace - now end
    local used = {}
    for i in ipairs(limits) do used[i] = key.states[i][1] end
    local ends = call('ZRANGE', H, 0, MOST - 1, 'WITHSCORES')
    for n = 1, #ends, 2 do
      local one = who(ends[n])
      local fits = true
      for i, limit in ipairs(limits) do
        if limit.holds then
          used[i] = used[i] - one.weights[i]
          fits = fits and used[i] + weights[i] <= limit.capacity
        end
      end
      if fits then return max(1, tonumber(ends[n + 1]) + allowance + 1 - now) end
    end
    return key.longest
  end

  local function refuse(outcome, index, at, weights)
    if outcome == 'never' then return answer('N', index, -1) end
    if outcome == 'release' then return answer('D', index, release_hint(weights)) end
    return answer('D', index, max(1, at - now))
  end

  function holders.peek(weights, nothing)
    if nothing then return answer('O', nil, 0) end
    local outcome, index, at = verdict(weights, true)
    if outcome == 'admit' then return answer('O', nil, 0) end
    return refuse(outcome, index, at, weights)
  end

  function holders.acquire(id, wait, lease, weights, nothing)
    if nothing then return answer('O', nil, 0) end
    key.longest = max(key.longest, lease)
    if score(D, id) then return answer('X', nil, 0) end
    if score(H, id) then
      local one = who(id)
      call('ZADD', H, show(max(now, one.booking.at) + lease), id)
      changed = true
      return answer('O', nil, max(0, one.booking.at - now), one.booking.at, one.fence, 0, one.booking)
    end
    if score(Q, id) then
      call('ZADD', W, show(now + life), id)
      changed = true
      return answer('Q', nil, 0, now, 0, call('ZRANK', Q, id))
    end
    local outcome, index, at = verdict(weights, true)
    local till = wait < 0 and math.huge or now + wait
    if outcome == 'admit' or (outcome == 'later' and at <= till) then
      local booking = decide.commit(limits, key, now, at, weights)
      local one = {weights = weights, channel = channel, deadline = 0, booking = booking}
      hold(id, one, booking.at, lease)
      return answer('O', nil, booking.at - now, booking.at, one.fence, 0, booking)
    end
    if outcome ~= 'release' or wait == 0 or rates_at(weights) > till then
      return refuse(outcome, index, at, weights)
    end
    key.ticket = key.ticket + 1
    call('ZADD', Q, show(key.ticket), id)
    call('ZADD', W, show(now + life), id)
    remember(id, {weights = weights, fence = 0, channel = channel, deadline = wait < 0 and 0 or till})
    return answer('Q', nil, 0, now, 0, call('ZRANK', Q, id))
  end

  local function mark_dead(id, dead)
    if dead > 0 then
      call('ZADD', D, show(now + dead), id)
      changed = true
    end
  end

  function holders.release(id, dead)
    mark_dead(id, dead)
    if not score(H, id) then return answer('S', nil, 0) end
    drop_holder(id)
    pump()
    return answer('O', nil, 0)
  end

  function holders.cancel(id, dead)
    mark_dead(id, dead)
    if score(H, id) then
      local one = drop_holder(id)
      if one.booking and one.booking.at > now then
        decide.cancel_rates(limits, key, now, one.booking)
      end
      pump()
      return answer('R', nil, 0)
    end
    if not score(Q, id) then return answer('S', nil, 0) end
    drop_waiter(id)
    pump()
    return answer('O', nil, 0)
  end

  function holders.renew(id, lease, known_era, weights)
    key.longest = max(key.longest, lease)
    if score(H, id) then
      local one = who(id)
      call('ZADD', H, show(max(now, one.booking.at) + lease), id)
      changed = true
      return answer('O', nil, 0, now, one.fence)
    end
    if known_era == key.era or now >= key.grace or score(D, id) then return answer('S', nil, 0) end
    -- The state was lost, not the lease: a holder that says so in time is one again.
    if score(Q, id) then drop_waiter(id) end
    local booking = {at = now, seq = 0, epoch = key.epoch, previous = 0, charges = {}}
    for i, limit in ipairs(limits) do
      booking.charges[i] = false
      if limit.holds then
        key.states[i][1] = key.states[i][1] + weights[i]
        booking.charges[i] = {weights[i]}
      end
    end
    local one = {weights = weights, channel = channel, deadline = 0, booking = booking}
    hold(id, one, now, lease)
    return answer('O', nil, 0, now, one.fence)
  end

  function holders.reset()
    for _, id in ipairs(call('ZRANGE', H, 0, -1)) do call('HDEL', I, id) end
    call('DEL', H)
    key.grace, changed = 0, true
  end

  holders.pump = pump

  -- Counts, lives and messages; answers until when the key is needed, and whether it changed.
  function holders.finish()
    if not changed then return 0, false end
    key.held, key.queued = call('ZCARD', H), call('ZCARD', Q)
    local till = key.grace
    for _, set in ipairs({H, W, D}) do
      local last = call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]
      if last then till = max(till, tonumber(last) + allowance) end
    end
    local px = show(math.ceil(max(till - now, 0) / 1000) + 1000)
    for i = 2, 6 do call('PEXPIRE', KEYS[i], px) end
    for _, one in ipairs(told) do call('PUBLISH', one[1], one[2]) end
    return till, true
  end

  if known or not whole then
    sweep()
    pump()
  end
  return holders
end
