-- Sliding log: src/limit/sliding_log.rs, in Lua.
-- Limit: {limit, window}. Charge: {weight, at}.
-- A log is its entries in order, each "time weight ". The last one and up to LOG_PAGE before it are in the
-- key's text; all older ones are pages of so many, in a list of their own. So a decision reads and writes
-- a piece of the log at most, and finds its way by the sums of the pages, which are in the text as well:
--   total first last last_weight count tail_weight pages skip front,sums,tail
-- total is all weight; first and last are times; count and tail_weight are of the tail, without the last
-- entry; of the first page what is before the character `skip` has left, front is the weight of what has
-- not; sums are the weights of the other pages. An entry whose weight was given back stays as a 0, but
-- neither the first nor the last one is.
--
-- If pages are lost, all weight counts as the last entry's; if the text is, the log counts as full for as
-- long as there are pages. Both admit too little until that is over, and never too much.
local LOG_MAX = 1125899906842624
local LOG_BOOKED = 4503599627370496
local LOG_PAGE = 64
local ENTRY = '(%d+) (%d+) ()'

-- How long the lists are that were asked for.
local log_lengths = {}

local function limit(n, list)
  return {capacity = n[1], window = n[2], list = list}
end

-- read: pages by where they stand in the list, or will stand; from `gone` on they are the log's, and up to
-- `stored` the list has them.
local function log_of(time, weight)
  return {total = weight, first = time, last = time, last_weight = weight, count = 0, tail_weight = 0,
    pages = 0, skip = 1, front = 0, sums = '', tail = '', gone = 0, stored = 0, read = {}, changed = {}}
end

local function fresh()
  return log_of(0, 0)
end

-- The sums and the tail are looked at only when they are needed: they may be long.
local function parse(text)
  local head = find(text, ',', 1, true)
  local sums = head and find(text, ',', head + 1, true)
  local h = sums and checked(sub(text, 1, head - 1), 9)
  if not h or (h[1] == 0) ~= (h[4] == 0) or h[1] < h[4] + h[6] + h[9] or h[2] > h[3] then return nil end
  return {total = h[1], first = h[2], last = h[3], last_weight = h[4], count = h[5], tail_weight = h[6],
    pages = h[7], skip = max(1, h[8]), front = h[9], sums = sub(text, head + 1, sums - 1),
    tail = sub(text, sums + 1), gone = 0, stored = h[7], read = {}, changed = {}}
end

local function text(s)
  return spaced({s.total, s.first, s.last, s.last_weight, s.count, s.tail_weight, s.pages, s.skip, s.front})
    .. ',' .. s.sums .. ',' .. s.tail
end

-- Looks at the pages: `s` if they are all there; nil if it is none of ours.
local function load(p, s, now)
  if s and s.pages == 0 then return s end
  local length = redis.pcall('LLEN', p.list)
  if type(length) == 'table' then return nil end
  log_lengths[p.list] = length
  if s and s.pages == length then return s end
  if s then return log_of(s.last, s.total) end
  if length == 0 then return fresh() end
  local left = redis.call('PTTL', p.list)
  if left < 0 then return nil end
  return log_of(max(0, now + left * 1000 - p.window), p.capacity)
end

-- The list as it is now. `px` is how long it is needed.
local function save(p, s, px)
  local from, to, length = s.gone, s.gone + s.pages, log_lengths[p.list]
  local kept = min(to, s.stored)
  if kept <= from then
    if (length or s.pages) > 0 then redis.call('DEL', p.list) end
  elseif from > 0 or kept < s.stored then
    redis.call('LTRIM', p.list, from, kept - 1)
  end
  for i in pairs(s.changed) do
    if i >= from and i < kept then redis.call('LSET', p.list, i - from, s.read[i]) end
  end
  for i = max(from, kept), to - 1 do redis.call('RPUSH', p.list, s.read[i]) end
  if s.pages > 0 then redis.call('PEXPIRE', p.list, px) end
end

local function fresh_at(p, s)
  if s.total == 0 then return 0 end
  return s.last + p.window
end

local function log_page(p, s, i)
  local text = s.read[i]
  if not text then
    text = redis.call('LINDEX', p.list, i) or ''
    s.read[i] = text
  end
  return text
end

-- The last page that begins at `time` or before, if that is not before the log.
local function log_page_at(p, s, time)
  local low, high = s.gone, s.gone + s.pages - 1
  while low < high do
    local middle = floor((low + high + 1) / 2)
    local begins = tonumber(match(log_page(p, s, middle), '^%d+')) or 0
    if begins <= time then low = middle else high = middle - 1 end
  end
  return low
end

-- Where the first entry later than `time` stands: its page, tail or last entry (one and two past the
-- pages), the character there, and how many entries are before it in the tail; the weight before it, and
-- how much of that in its page; its own time. There must be one, and one that is not later.
local function log_after(p, s, time)
  local i, ends, from, before = s.gone, s.gone + s.pages, s.skip, 0
  while i <= ends do
    local inside, count = 0, 0
    local text = i < ends and log_page(p, s, i) or s.tail
    if from > 1 then text = sub(text, from) end
    local at = 1
    for t, weight, next in gmatch(text, ENTRY) do
      t, weight = tonumber(t), tonumber(weight)
      if t > time and weight > 0 then return i, from + at - 1, count, before + inside, inside, t end
      inside, count, at = inside + weight, count + 1, next
    end
    before = before + inside
    local next = i + 1
    if next < ends then
      next = max(next, log_page_at(p, s, time))
      local sums = next > i + 1 and numbers(s.sums) or {}
      for skipped = i + 1, next - 1 do before = before + (sums[skipped - s.gone] or 0) end
    end
    i, from = next, 1
  end
  return i, 1, 0, before, 0, s.last
end

-- The time of the entry with which so much weight of the oldest is reached.
local function log_reaching(p, s, weight)
  if weight > s.total - s.last_weight then return s.last end
  if weight == 1 then return s.first end
  local i, ends, from = s.gone, s.gone + s.pages, s.skip
  local sum, sums, n = s.front, nil, 0
  while i < ends and sum < weight do
    sums = sums or numbers(s.sums)
    weight, n, i, from = weight - sum, n + 1, i + 1, 1
    sum = sums[n] or 0
  end
  local text = i < ends and log_page(p, s, i) or s.tail
  for t, w in gmatch(sub(text, from), ENTRY) do
    weight = weight - tonumber(w)
    if weight <= 0 then return tonumber(t) end
  end
  return s.last
end

local function wait(p, s, now, at, weight)
  if weight > p.capacity then return -1 end
  local must_leave = s.total - (p.capacity - weight)
  if must_leave <= 0 or s.last + p.window <= at then return 0 end
  return max(0, log_reaching(p, s, must_leave) + p.window - at)
end

local function log_clear(s)
  s.gone, s.pages, s.skip, s.front, s.sums = s.gone + s.pages, 0, 1, 0, ''
  s.total, s.last_weight, s.count, s.tail_weight, s.tail = 0, 0, 0, 0, ''
end

-- The weight of the page that is `n` after the first; the sums of those behind it.
local function log_sums_from(s, n)
  for sum, next in gmatch(s.sums, '(%d+)()') do
    n = n - 1
    if n == 0 then return tonumber(sum), sub(s.sums, next) end
  end
  return 0, ''
end

-- Forgets all entries up to `time`; and what comes first then if that is a 0.
local function log_forget(p, s, time)
  if s.last <= time then return log_clear(s) end
  local ends = s.gone + s.pages
  local i, from, count, before, inside, first = log_after(p, s, time)
  s.total, s.first = max(s.last_weight, s.total - before), first
  if i < ends then
    if i > s.gone then
      s.front, s.sums = log_sums_from(s, i - s.gone)
      s.gone, s.pages = i, ends - i
    end
    s.front, s.skip = max(0, s.front - inside), from
    return
  end
  s.gone, s.pages, s.skip, s.front, s.sums = ends, 0, 1, 0, ''
  if i == ends then
    s.tail, s.count = sub(s.tail, from), s.count - count
    s.tail_weight = max(0, s.tail_weight - inside)
  else
    s.tail, s.count, s.tail_weight = '', 0, 0
  end
end

-- The tail becomes a page.
local function log_turn(s)
  local i = s.gone + s.pages
  s.read[i], s.changed[i] = s.tail, true
  if s.pages == 0 then
    s.front, s.skip = s.tail_weight, 1
  else
    s.sums = s.sums .. ' ' .. show(s.tail_weight)
  end
  s.pages, s.tail, s.count, s.tail_weight = s.pages + 1, '', 0, 0
end

-- Forgets what is a window old now (not at `at`: until then the charge may be undone).
local function charge(p, s, now, at, weight)
  if s.total > 0 and s.first + p.window <= now then log_forget(p, s, now - p.window) end
  if s.total > 0 and s.last == at then
    s.last_weight = s.last_weight + weight
  else
    if s.total > 0 then
      s.tail = s.tail .. show(s.last) .. ' ' .. show(s.last_weight) .. ' '
      s.count, s.tail_weight = s.count + 1, s.tail_weight + s.last_weight
      if s.count >= LOG_PAGE then log_turn(s) end
    else
      s.first = at
    end
    s.last, s.last_weight = at, weight
  end
  s.total = s.total + weight
  return {weight, at}
end

-- The last page becomes the tail again.
local function log_turn_back(p, s)
  local i = s.gone + s.pages - 1
  s.tail, s.pages = log_page(p, s, i), s.pages - 1
  if s.pages == 0 then
    s.tail, s.tail_weight, s.front, s.skip = sub(s.tail, s.skip), s.front, 0, 1
  else
    local others, sum = match(s.sums, '^(.-) *(%d+)$')
    s.sums, s.tail_weight = others or '', tonumber(sum or 0)
  end
  local _, count = string.gsub(s.tail, ENTRY, '')
  s.count = count
end

-- The last entry is a 0: the one before it is the last now.
local function log_drop_last(p, s)
  while s.total > 0 do
    if s.tail == '' then
      if s.pages == 0 then return log_clear(s) end
      log_turn_back(p, s)
    end
    local entry, time, weight = match(sub(s.tail, -36), '((%d+) (%d+) )$')
    if not entry then return log_clear(s) end
    weight = tonumber(weight)
    s.tail = sub(s.tail, 1, -#entry - 1)
    s.count, s.tail_weight = max(0, s.count - 1), max(0, s.tail_weight - weight)
    s.last, s.last_weight = tonumber(time), weight
    if weight > 0 then return end
  end
  log_clear(s)
end

-- Corrects the entry of the charge, as long as it is remembered.
local function log_adjust(p, s, base, c, actual)
  local at, ends = c[2], s.gone + s.pages
  if s.total == 0 or at < s.first or at > s.last then return end
  local i, text, held, from, till
  if at == s.last then
    held = s.last_weight
  else
    i, text = ends, s.tail
    if s.pages > 0 and at < (tonumber(match(text, '^%d+')) or s.last) then
      i = log_page_at(p, s, at)
      text = log_page(p, s, i)
    end
    local place = 1
    for t, weight, next in gmatch(text, ENTRY) do
      if tonumber(t) == at then
        held, from, till = tonumber(weight), place, next
        break
      end
      place = next
    end
    if not held or held == 0 then return end
  end
  local weight = min(c[1], held)
  -- Bookings ahead may count more than that already, and keep it.
  actual = min(actual, max(weight, LOG_MAX - (s.total - weight)))
  local more = actual - weight
  s.total, held = s.total + more, held + more
  c[1] = actual
  if not i then
    s.last_weight = held
    if held == 0 then log_drop_last(p, s) end
    return
  end
  text = sub(text, 1, from - 1) .. show(at) .. ' ' .. show(held) .. ' ' .. sub(text, till)
  if i == ends then
    s.tail, s.tail_weight = text, s.tail_weight + more
  else
    s.read[i], s.changed[i] = text, true
    if i == s.gone then
      s.front = s.front + more
    else
      local sums = numbers(s.sums)
      sums[i - s.gone] = (sums[i - s.gone] or 0) + more
      s.sums = spaced(sums)
    end
  end
  if held == 0 and at == s.first then log_forget(p, s, at) end
end

-- Of several that were joined it is the time of the first; nothing came after them that is still there.
local function undo(p, s, c)
  local left = c[1]
  while left > 0 and s.total > 0 and s.last >= c[2] do
    local weight = min(left, s.last_weight)
    log_adjust(p, s, 0, {weight, s.last}, 0)
    left = left - weight
  end
end

local function join(p, a, b)
  return {min(a[1] + b[1], LOG_BOOKED), a[2]}
end

-- What is less than a window old, and since when the first of it is.
local function log_used(p, s, at)
  if s.total == 0 or s.last + p.window <= at then return 0, 0 end
  if s.first + p.window > at then return s.total, s.first end
  local _, _, _, before, _, first = log_after(p, s, at - p.window)
  return s.total - before, first
end

-- Whether a weight cannot be remembered besides what is booked already.
local function is_full(p, s, now, weight)
  return s.total + weight > LOG_BOOKED and log_used(p, s, now) + weight > LOG_BOOKED
end

-- Reset is when the oldest entry leaves.
local function figures(p, s, now, at)
  local used, oldest = log_used(p, s, at)
  return p.capacity, max(0, p.capacity - used), used > 0 and oldest + p.window - at or 0
end

kinds.L = {
  takes = 2, charge_size = 2, limit = limit, fresh = fresh, parse = parse, text = text, load = load,
  save = save, fresh_at = fresh_at, wait = wait, charge = charge, undo = undo, join = join, figures = figures,
  lower = log_adjust, raise = log_adjust, is_full = is_full,
}
