-- Who uses a limiter: each process says so now and then. Answers how many have done so lately.
-- KEYS: 1 a sorted set, a process and when it last said so.
-- ARGV: 1 the process; 2 for how many microseconds that holds.
local time = redis.call('TIME')
local now, life = time[1] * 1000000 + time[2], tonumber(ARGV[2])
local function show(number) return string.format('%.0f', number) end
redis.call('ZADD', KEYS[1], show(now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', show(now - life))
redis.call('PEXPIRE', KEYS[1], show(math.ceil(life / 1000) + 1000))
return redis.call('ZCARD', KEYS[1])
