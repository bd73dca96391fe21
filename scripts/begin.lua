-- The beginning of every script: the time, and what is stored. See main.lua for what it is asked.
local ARGV = ARGV
local not_after, second, micro = ARGV[1] + 0, '0', nil
if not_after < 0 then
  micro = string.sub(ARGV[1], 2)
else
  local time = redis.call('TIME')
  second, micro = time[1], time[2]
end
local raw_now = second * 1000000 + micro
if raw_now > not_after and not_after > 0 then return {string.format('%d', raw_now)} end
local stored = redis.pcall('GET', KEYS[1])
