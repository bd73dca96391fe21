-- A token bucket, asked for the same by any number of calls that do not wait, while nothing is booked
-- ahead of them, nor refunded: what is asked for most. All of them are decided at once, with the numbers
-- of token_bucket.lua; and before anything else is made that this does without. Any other case falls
-- through to the rest of the script, with nothing done. The operation, which must be the only one:
--   B weight count one full n   (or Q) take, so often, `one` of `full`: costs of the weight and the capacity, in
--                               parts of time of which n are a microsecond
-- The answer is what was stored, or would have been: the client can tell the decisions from that as well,
-- see src/redis/wire/run.rs. Reply: {seconds, microseconds, text, weight}, without the weight if it is 1.

-- The text, or nothing.
local function fast(limits, opened, op, weight, count, one, full, n, more, text, raw_now)
  if (op ~= 'B' and op ~= 'Q') or more then return nil end
  local string, fmod = string, math.fmod
  local sub, format = string.sub, string.format
  one, full, n = one + 0, full + 0, n + 0
  local from = #limits + 54
  if not text then
    -- As decide.lua makes it.
    local mark = 0
    for number in string.gmatch(string.match(limits, ';T%d (.*)$'), '%d+') do
      mark = fmod(mark * 1999993 + fmod(number, 2147483647), 2147483647)
    end
    opened = opened + 0
    if opened <= 0 then opened = math.max(0, raw_now + opened) end
    text = format('1;%016d %016d %016d;%s;%016d;%016d %016d', 0, opened, mark * 1048576, limits, raw_now,
      raw_now, 0)
  elseif #text ~= from + 50 or sub(text, 54, from - 1) ~= limits then
    return nil
  end
  -- See state.lua: a text of this length and with this inside has these numbers and no more.
  if sub(text, from + 1, from + 16) + 0 > raw_now then return nil end
  local us, rem = sub(text, from + 18, from + 33) + 0, 0
  if us < raw_now then us = raw_now else rem = sub(text, from + 35) + 0 end
  local left = full - (us - raw_now) * n - rem
  if left < 0 then return nil end
  local passed, fits = count + 0, (left - fmod(left, one)) / one
  if passed > fits then passed = fits end
  if passed > 0 then
    rem = rem + passed * one
    local rest = fmod(rem, n)
    us = us + (rem - rest) / n
    local till = rest > 0 and us + 1 or us
    local state = format('%016d;%016d %016d', raw_now, us, rest)
    if till <= sub(text, 3, 18) + 0 then
      -- The key will not end too early.
      redis.call('SETRANGE', KEYS[1], from, state)
    else
      redis.call('SET', KEYS[1], format('1;%016d', till + 1000000) .. sub(text, 19, from) .. state, 'PX',
        math.ceil((till - raw_now) / 1000) + 2000)
    end
  end
  return text
end

-- What is stored may be no numbers; the rest of the script tells.
local sound, text = pcall(fast, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9],
  ARGV[10], stored, raw_now)
if sound and text then
  if ARGV[5] == '1' then return {second, micro, text} end
  return {second, micro, text, ARGV[5]}
end
