-- Several limits together: src/limit/decide.rs, ahead.rs and key.rs, in Lua.
-- A limit: {kind, rule, text, per_call, holds}.
-- A key: {states = one for each limit, booked, blocked, seq, epoch, epoch_until, fill, parked, owed}.
-- A booking: {at, seq, epoch, previous, charges}; of a limit that nothing was charged, false.
-- What is parked: cancelled bookings in a row, as one: it has the charges of all, time and number of the last,
-- what was before the first, and under `first` that one's number.
local MAX_PARKED = 128
local MAX_OWED = 64

-- The kinds, by their letter; each kind that the limiter needs is added after this file.
local kinds = {}

local function base_of(key, now)
  return max(now, key.booked, key.blocked)
end

local function needed_until(key)
  return max(key.booked, key.blocked, key.epoch_until)
end

-- An epoch is a number for the rules and a count: a booking is corrected under the rules it was made
-- under only, even if the key was forgotten since and came to be under others.
local EPOCHS = 1048576

local function epoch_of(limits, count)
  local mark = 0
  for _, limit in ipairs(limits) do
    for n in gmatch(limit.text, '%d+') do mark = fmod(mark * 1999993 + fmod(n, 2147483647), 2147483647) end
  end
  return mark * EPOCHS + fmod(count, EPOCHS)
end

local function fresh_states(limits, now)
  local states = {}
  for i, limit in ipairs(limits) do states[i] = limit.kind.fresh(limit.rule, now) end
  return states
end

-- `people` and `era` are of semaphores only, see holders.lua.
local function blank_key(states, epoch, seen)
  return {
    states = states, booked = 0, blocked = 0, seq = 0, epoch = epoch, epoch_until = 0, fill = 0, told = 0,
    parked = {}, owed = {}, seen = seen, skew = 0, version = 0, opened = 0, params = '', from = false,
    stepped = false, people = nil, era = nil,
  }
end

local function fresh_key(limits, now)
  return blank_key(fresh_states(limits, now), epoch_of(limits, 0), now)
end

-- From then on the key may be forgotten.
local function fresh_at(limits, key)
  local at = needed_until(key)
  for i, limit in ipairs(limits) do at = max(at, limit.kind.fresh_at(limit.rule, key.states[i])) end
  return at
end

-- What each limit is asked for; whether that is nothing at all.
local function weights_of(limits, asked)
  local weights, nothing = {}, true
  for i, limit in ipairs(limits) do
    local weight = asked[i] or asked[1]
    if limit.per_call and weight > 1 then weight = 1 end
    if weight > 0 then nothing = false end
    weights[i] = weight
  end
  return weights, nothing
end

-- How it ends, the index of the limit that stands in the way most, and when it passes:
-- 'admit', 'later', 'far' (too far ahead to be booked, or behind too much), 'release', 'never'.
local function decide(limits, key, now, weights, nothing)
  local base = base_of(key, now)
  local most, index, first, release = 0, 1, nil, nil
  for i, limit in ipairs(limits) do
    local weight = weights[i]
    if weight > 0 then
      local wait = limit.kind.wait(limit.rule, key.states[i], now, base, weight)
      if wait == -1 then return 'never', i, 0 end
      if wait == -2 then
        release = release or i
      elseif wait > most then
        most, index = wait, i
      elseif wait == 0 and not limit.holds then
        first = first or i
      end
    end
  end
  if release then return 'release', release, 0 end
  local at = base + most
  if at == now or nothing then return 'admit', 1, now end
  if most == 0 then index = first or 1 end
  local room = at - now <= MAX_AHEAD
  for i, limit in ipairs(limits) do
    room = room and not (limit.kind.is_full and limit.kind.is_full(limit.rule, key.states[i], now, weights[i]))
  end
  if room then return 'later', index, at end
  return 'far', index, at
end

-- What buckets of former limits owe is not paid by the time that pays for what is taken now.
local function taken(key, now, at)
  if key.epoch_until > now then key.epoch_until = max(key.epoch_until, at + key.fill) end
end

-- `was`: what it took when it was booked before.
local function commit(limits, key, now, at, weights, was)
  local charges = {}
  local booking = {at = at, seq = 0, epoch = key.epoch, previous = 0, charges = charges}
  for i, limit in ipairs(limits) do
    local weight = weights[i]
    local since = was and was.charges[i] and limit.kind.since and limit.kind.since(was.charges[i]) or now
    charges[i] = weight > 0 and limit.kind.charge(limit.rule, key.states[i], since, at, weight)
  end
  taken(key, now, at)
  if at > now then
    -- They are counted from a time on, so that none is taken for one of an earlier count.
    if key.seq == 0 then key.seq = now end
    key.seq = key.seq + 1
    booking.previous, booking.seq = key.booked, key.seq
    key.booked = at
  else
    -- All that was booked before is over: what follows does not follow that, nor is it taken back.
    key.seq, key.booked, key.parked = 0, 0, {}
  end
  return booking
end

local function undo(limits, key, booking)
  for i, limit in ipairs(limits) do
    local charge = booking.charges[i]
    if charge and not limit.holds then limit.kind.undo(limit.rule, key.states[i], charge) end
  end
  key.booked, key.seq = booking.previous, booking.first - 1
end

-- Charges that are undone as those of two bookings in a row are; nil: there are none.
local function join(limits, earlier, later)
  local charges = {}
  for i, limit in ipairs(limits) do
    local a, b = earlier[i], later[i]
    if limit.holds then
      charges[i] = false
    elseif a and b then
      charges[i] = limit.kind.join(limit.rule, a, b)
      if not charges[i] then return nil end
    else
      charges[i] = a or b
    end
  end
  return charges
end

-- Takes out what is parked with this number.
local function take_parked(key, field, number)
  for i, parked in ipairs(key.parked) do
    if parked[field] == number then return table.remove(key.parked, i) end
  end
end

-- With its neighbours, if they can be joined. While a penalty lasts nothing has passed yet.
local function park(limits, key, now, booking)
  if key.blocked <= now then
    for i = #key.parked, 1, -1 do
      if key.parked[i].at <= now then table.remove(key.parked, i) end
    end
  end
  local run = booking
  for _, side in ipairs({{'seq', run.first - 1}, {'first', run.seq + 1}}) do
    local other = take_parked(key, side[1], side[2])
    if other then
      local earlier, later = other, run
      if side[1] == 'first' then earlier, later = run, other end
      local charges = join(limits, earlier.charges, later.charges)
      if charges then
        run = {
          at = later.at, seq = later.seq, epoch = later.epoch, previous = earlier.previous, charges = charges,
          first = earlier.first,
        }
      else
        key.parked[#key.parked + 1] = other
      end
    end
  end
  key.parked[#key.parked + 1] = run
  if #key.parked > MAX_PARKED then
    local first = 1
    for i, parked in ipairs(key.parked) do
      if parked.first < key.parked[first].first then first = i end
    end
    table.remove(key.parked, first)
  end
end

-- The first slot to come that was given back in the middle and took as much as is asked for now: whoever comes
-- has it rather than a new one. While a penalty lasts there is none; nor where the clock has stepped back: who
-- was told before how long to wait starts earlier than the key's time says, and so would come too close.
local function given_back(key, now, wait, weights)
  local which
  for i, one in ipairs(key.blocked <= now and key.skew == 0 and key.parked or {}) do
    local fits = one.first == one.seq and one.at > now and (wait < 0 or one.at <= now + wait)
      and not (which and key.parked[which].at < one.at)
    for n, weight in ipairs(fits and weights or {}) do
      fits = fits and (one.charges[n] and one.charges[n][1] or 0) == weight
    end
    which = fits and i or which
  end
  return which and table.remove(key.parked, which)
end

-- Takes back what a booking that is not due yet took of rates.
local function cancel_rates(limits, key, now, booking)
  -- A key that was lost and came to be anew knows nothing of the booking.
  if booking.epoch ~= key.epoch or booking.seq > key.seq or booking.at > key.booked then return end
  booking.first = booking.seq
  if booking.seq ~= key.seq or booking.at ~= key.booked then
    park(limits, key, now, booking)
    return
  end
  local newest = booking
  while newest do
    undo(limits, key, newest)
    newest = take_parked(key, 'seq', key.seq)
  end
end

-- Takes a booking back, to be booked again, if none was made after it: what is behind another one could only
-- come behind it.
local function lift(limits, key, now, booking)
  if booking.at <= now or booking.seq == 0 or booking.seq ~= key.seq or booking.at ~= key.booked
    or booking.epoch ~= key.epoch then return false end
  cancel_rates(limits, key, now, booking)
  return true
end

-- As `decide`, for what was taken back from a time: it does not come later, but for a penalty.
local function decide_again(limits, key, now, was, weights)
  local outcome, index, at = decide(limits, key, now, weights, false)
  if key.blocked <= was and (outcome == 'never' or at > was) then return 'later', index, was end
  return outcome, index, at
end

-- A key that was forgotten since counts its epochs anew: it has nothing of the booking, unless that used more.
local function follow(key, booking)
  if booking.epoch > key.epoch and floor(booking.epoch / EPOCHS) == floor(key.epoch / EPOCHS) then
    booking.epoch = key.epoch
  end
end

-- The key was reset since, under the same rules.
local function is_reset(key, booking)
  return booking.epoch ~= key.epoch and floor(booking.epoch / EPOCHS) == floor(key.epoch / EPOCHS)
end

-- Corrects what a booking was charged to what was used.
local function settle(limits, key, now, booking, actual)
  if booking.epoch ~= key.epoch then return end
  local base = base_of(key, now)
  for i, limit in ipairs(limits) do
    local charge = booking.charges[i]
    if charge and not limit.per_call and not limit.holds then
      if actual < charge[1] then
        limit.kind.lower(limit.rule, key.states[i], base, charge, actual)
      elseif actual > charge[1] then
        limit.kind.raise(limit.rule, key.states[i], base, charge, actual, now)
      end
    end
  end
  taken(key, now, now)
end

-- Settled at less while there are bookings ahead, a charge gives back no more than those do not count on. The
-- rest it does when they are taken back.
local function still_owes(limits, now, one)
  for i, limit in ipairs(limits) do
    local charge = one.booking.charges[i]
    if charge and not limit.per_call and limit.kind.owes and limit.kind.owes(limit.rule, charge, one.actual, now)
    then return true end
  end
  return false
end

local function owe(limits, key, now, booking, actual)
  local one = {booking = booking, actual = actual}
  if booking.epoch ~= key.epoch or key.booked <= now or not still_owes(limits, now, one) then return end
  if #key.owed == MAX_OWED then table.remove(key.owed, 1) end
  key.owed[#key.owed + 1] = one
end

local function repay(limits, key, now)
  local base, kept = base_of(key, now), {}
  for _, one in ipairs(key.owed) do
    for i, limit in ipairs(limits) do
      local charge = one.booking.charges[i]
      if charge and not limit.per_call and limit.kind.owes then
        limit.kind.lower(limit.rule, key.states[i], base, charge, one.actual)
      end
    end
    if still_owes(limits, now, one) then kept[#kept + 1] = one end
  end
  key.owed = kept
end

local function penalize(key, now, till)
  till = min(till, now + MAX_AHEAD)
  if till > now then key.blocked = max(key.blocked, till) end
end

local function next_epoch(limits, key, needed)
  key.epoch = epoch_of(limits, fmod(key.epoch, EPOCHS) + 1)
  key.epoch_until = max(key.epoch_until, needed)
  key.parked, key.owed = {}, {}
end

-- `fill` is not 0 while something is owed that the states do not tell.
local function rates_fresh_at(limits, key)
  local at = key.fill > 0 and needed_until(key) or max(key.booked, key.blocked)
  for i, limit in ipairs(limits) do
    if not limit.holds then at = max(at, limit.kind.fresh_at(limit.rule, key.states[i])) end
  end
  return at
end

local function reset(limits, key, now)
  local needed = rates_fresh_at(limits, key)
  key.states = fresh_states(limits, now)
  key.booked, key.blocked, key.fill = 0, 0, 0
  next_epoch(limits, key, needed)
end

-- Makes a key that was used under the limits `from`, of the same shape, one of these limits.
local function reconfigure(limits, from, key, now)
  local base = base_of(key, now)
  local needed = rates_fresh_at(from, key)
  local changed, fill = false, 0
  for i, limit in ipairs(limits) do
    if limit.kind.fill then fill = max(fill, limit.kind.fill(from[i].rule)) end
    if limit.text ~= from[i].text then
      changed = true
      -- It may have been forgotten, or not: that makes no difference.
      if needed <= now and not limit.holds then
        key.states[i] = limit.kind.fresh(limit.rule, now)
      elseif limit.kind.reconfigure then
        limit.kind.reconfigure(limit.rule, from[i].rule, key.states[i], now, base)
      end
    end
  end
  if not changed then return end
  if key.epoch_until <= now then key.fill = 0 end
  if needed > now then key.fill = max(key.fill, fill, 1) end
  next_epoch(limits, key, needed)
end

-- A key that is as new is as if it had been forgotten: what starts empty is empty again.
local function forget(limits, key, now)
  for i, limit in ipairs(limits) do
    if limit.rule.empty then key.states[i] = limit.kind.fresh(limit.rule, now) end
  end
  key.booked, key.blocked, key.seq, key.epoch, key.epoch_until, key.fill = 0, 0, 0, epoch_of(limits, 0), 0, 0
  key.parked, key.owed = {}, {}
end

-- Limit, remaining, reset_after and index: of the limit at `index`, or of the tightest.
local function figures(limits, key, now, index)
  local base = base_of(key, now)
  local limit, remaining, reset, which
  for i, one in ipairs(limits) do
    if not index or index == i then
      local l, r, a = one.kind.figures(one.rule, key.states[i], now, base)
      if base > now and (key.blocked > now or not one.holds) then r, a = 0, a + base - now end
      if not remaining or r < remaining then limit, remaining, reset, which = l, r, a, i end
    end
  end
  return limit, remaining, reset, which
end
