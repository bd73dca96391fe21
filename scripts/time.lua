-- Numbers and their text; time and exact arithmetic: src/limit/time.rs and src/limit/rate.rs, in Lua.
-- Everything is an integer below 2^53: microseconds, units, remainders. Lua's own % and tostring() are not
-- exact up there; fmod() and %d are, and %d takes half the time of %.0f.
local floor, fmod, max, min = math.floor, math.fmod, math.max, math.min
local sub, find, match, gmatch = string.sub, string.find, string.match, string.gmatch
local format, rep = string.format, string.rep

-- Ten years; a hundred and ten; the largest sum of refunds: src/limit/bounds.rs, ledger.rs.
local MAX_AHEAD = 315576000000000
local MAX_DEBT = 3155760000000000 + MAX_AHEAD
local LEDGER_MOST = 4503599627370496
local TOO_LARGE = 9007199254740992

-- How long a bucket that starts empty stays full, see src/limit/bounds.rs.
local function kept_full(fill)
  return min(max(2 * fill, 60000000), MAX_AHEAD)
end

local function show(n)
  return format('%d', n)
end

local function numbers(text)
  local list, count = {}, 0
  for n in gmatch(text, '%d+') do
    count = count + 1
    list[count] = n + 0
  end
  return list
end

-- So many numbers of ours, or nil.
local function checked(text, count)
  if count == 0 then return text == '' and {} or nil end
  local list = {match(text, '^' .. rep('(%d+) ', count - 1) .. '(%d+)$')}
  for i = 1, count do
    local n = (list[i] or TOO_LARGE) + 0
    if n >= TOO_LARGE then return nil end
    list[i] = n
  end
  return list
end

local function spaced(list)
  local count = #list
  if count == 0 then return '' end
  return format(rep('%d ', count - 1) .. '%d', unpack(list))
end

-- a * b = q * n + r with 0 <= r < n, however large the product; a, b, q < 2^53 and n < 2^52.
local function muldiv(a, b, n)
  local product = a * b
  if product < 9007199254740992 then
    local r = fmod(product, n)
    return (product - r) / n, r
  end
  local br = fmod(b, n)
  local bq = (b - br) / n
  local bit = 1
  while bit * 2 <= a and bit < 9007199254740992 do bit = bit * 2 end
  local q, r = 0, 0
  while bit >= 1 do
    q, r = q * 2, r * 2
    if r >= n then q, r = q + 1, r - n end
    if a >= bit then
      a, q, r = a - bit, q + bq, r + br
      if r >= n then q, r = q + 1, r - n end
    end
    bit = bit / 2
  end
  return q, r
end

local function div_ceil(a, b)
  local r = fmod(a, b)
  local q = (a - r) / b
  if r > 0 then return q + 1 end
  return q
end

-- A tick is a point or length of time with a fraction: us + rem / n microseconds, 0 <= rem < n, where
-- n is the units of the rate it belongs to. It travels as two values.
local function tick_add(us, rem, us2, rem2, n)
  us, rem = us + us2, rem + rem2
  if rem >= n then return us + 1, rem - n end
  return us, rem
end

-- Never below zero.
local function tick_sub(us, rem, us2, rem2, n)
  us, rem = us - us2, rem - rem2
  if rem < 0 then us, rem = us - 1, rem + n end
  if us < 0 then return 0, 0 end
  return us, rem
end

local function tick_less(us, rem, us2, rem2)
  return us < us2 or (us == us2 and rem < rem2)
end

local function tick_max(us, rem, us2, rem2)
  if tick_less(us, rem, us2, rem2) then return us2, rem2 end
  return us, rem
end

local function tick_min(us, rem, us2, rem2)
  if tick_less(us2, rem2, us, rem) then return us2, rem2 end
  return us, rem
end

local function tick_ceil(us, rem)
  if rem > 0 then return us + 1 end
  return us
end

-- What `weight` units cost at n units per p microseconds.
local function cost(weight, n, p)
  return muldiv(weight, p, n)
end

-- Whole units that a time brings, rounded down.
local function brings(us, rem, n, p)
  local whole, rest = muldiv(us, n, p)
  return whole + floor((rest + rem) / p)
end

local function brings_up(us, rem, n, p)
  local whole = brings(us, rem, n, p)
  local us2, rem2 = cost(whole, n, p)
  if tick_less(us2, rem2, us, rem) then return whole + 1 end
  return whole
end

-- The same time as a tick of another rate, rounded up.
local function adopt(us, rem, from, n)
  local rem2, rest = muldiv(rem, n, from)
  if rest > 0 then rem2 = rem2 + 1 end
  if rem2 == n then return us + 1, 0 end
  return us, rem2
end
