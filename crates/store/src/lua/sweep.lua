-- Closes what is overdue; trims tombstones and last seen; takes back deadlines that are too far
-- away.
--
-- Body: fence: epoch, fence: number, limit, max_deadline_ms, retention_ms, origin of what it
--       closes, or ""
-- Answers: ok epoch now closed next (-1 for none) | refused epoch now

local DISCONNECT, TIMEOUT, NODE_LOST = 2, 3, 4

-- Of the sweep that runs.
local limit, condemned, sweep_origin

local function clamp(max_deadline_ms)
  local most = format('%d', now + max_deadline_ms)
  local far = call('ZREVRANGEBYSCORE', DEADLINES, '(+inf', '(' .. most, 'LIMIT', 0, limit)
  for _, member in ipairs(far) do
    call('ZADD', DEADLINES, most, member)
  end
end

local function forget_seen(retention_ms)
  local before = format('(%d', now - retention_ms)
  local old = math.min(limit, call('ZCOUNT', SEEN, '-inf', before))
  if old > 0 then
    call('ZREMRANGEBYRANK', SEEN, 0, old - 1)
  end
end

-- A holder at exactly its deadline still counts.
local function is_overdue(member, due)
  local letter = string.sub(member, 1, 1)
  return not (due == now and (letter == 'h' or letter == 'd'))
end

-- Adds members between two scores to a list of { member, score } until it has `limit`.
local function collect(list, from, to, wanted)
  local offset = 0
  while #list < limit do
    local page = call('ZRANGEBYSCORE', DEADLINES, from, to, 'WITHSCORES', 'LIMIT', offset, limit)
    for i = 1, #page, 2 do
      local due = tonumber(page[i + 1])
      if #list < limit and wanted(page[i], due) then
        list[#list + 1] = { page[i], due }
      end
    end
    if #page < 2 * limit then
      return
    end
    offset = offset + limit
  end
end

-- Overdue members, by deadline and then by bytes. The condemned are overdue whatever the clock
-- says; one that was set back leaves them among the others, which is worth a search only then.
local function overdue()
  local list = {}
  collect(list, '-inf', format('%d', now), is_overdue)
  local found = 0
  for _, entry in ipairs(list) do
    local letter = string.sub(entry[1], 1, 1)
    if letter == 'c' or letter == 'e' then
      found = found + 1
    end
  end
  if found < condemned then
    collect(list, format('(%d', now), '(+inf', function(member)
      local letter = string.sub(member, 1, 1)
      return letter == 'c' or letter == 'e'
    end)
  end
  return list
end

-- Removes the tombstones of a list of overdue members, and them from it.
local function drop_tombs(list)
  local members, keys, others = {}, {}, {}
  for _, entry in ipairs(list) do
    local member = entry[1]
    if string.sub(member, 1, 1) == 't' then
      members[#members + 1] = member
      keys[#keys + 1] = string.sub(member, 2)
    else
      others[#others + 1] = entry
    end
  end
  -- Lua's unpack takes a few thousand; a sweep's limit may be higher.
  for from = 1, #members, 1000 do
    local to = math.min(from + 999, #members)
    call('ZREM', DEADLINES, unpack(members, from, to))
    call('HDEL', TOMBS, unpack(keys, from, to))
  end
  return others
end

-- Closes the session of a key if its holder is this one.
local function close_held(key, holder, reason)
  local owner, device = string.match(key, '^(.*)\31([^\31]*)$')
  local person = read_person(call('HGET', PEOPLE, owner))
  local session, place = find(person, device)
  if not session or session[1] ~= holder then
    return 0
  end
  remove_session(owner, person, place, reason, sweep_origin)
  -- The owner's next session may be swept by the same call.
  write_down()
  return 1
end

-- Closes at most `most` sessions of a condemned holder. Answers how many.
local function close_all(member, holder, reason, most)
  local from, to = '[' .. holder .. '\31', '(' .. holder .. '\32'
  local closed = 0
  while closed < most do
    local page = call('ZRANGEBYLEX', HELD, from, to, 'LIMIT', 0, most - closed)
    if #page == 0 then
      break
    end
    for _, entry in ipairs(page) do
      -- Removing a session takes it from its holder; an entry without one is in the way.
      local removed = close_held(string.sub(entry, #holder + 2), holder, reason)
      if removed == 0 then
        call('ZREM', HELD, entry)
      end
      closed = closed + removed
    end
  end
  if call('ZLEXCOUNT', HELD, from, to) == 0 then
    call('ZREM', DEADLINES, member)
    condemned = condemned - 1
    call('HSET', META, 'condemned', condemned)
  end
  return closed
end

local function condemn(member, due)
  local doomed = (string.sub(member, 1, 1) == 'h' and 'c' or 'e') .. string.sub(member, 2)
  call('ZREM', DEADLINES, member)
  call('ZADD', DEADLINES, format('%d', due), doomed)
  condemned = condemned + 1
  call('HSET', META, 'condemned', condemned)
  return doomed
end

-- Does what an overdue member asks for. Answers how many sessions it closed.
local function settle_member(member, due, most)
  local letter, rest = string.sub(member, 1, 1), string.sub(member, 2)
  if letter == 's' then
    call('ZREM', DEADLINES, member)
    return close_held(rest, '', TIMEOUT)
  elseif letter == 'h' or letter == 'd' then
    member = condemn(member, due)
    letter = string.sub(member, 1, 1)
  end
  local reason = letter == 'c' and NODE_LOST or DISCONNECT
  return close_all(member, rest, reason, most)
end

-- How long until the next one can be due; -1 if there is none. Tombstones are in no hurry: of the
-- first 32 they count only if nothing else is among them, and then the last one does.
local function next_due()
  local first = call('ZRANGE', DEADLINES, 0, 31, 'WITHSCORES')
  local wait = -1
  for i = 1, #first, 2 do
    local letter = string.sub(first[i], 1, 1)
    if letter == '' then
      break
    end
    local last_instant = (letter == 'h' or letter == 'd') and 1 or 0
    wait = math.max(tonumber(first[i + 1]) - now + last_instant, 1)
    if letter ~= 't' then
      break
    end
  end
  return wait
end

writing('sweep', function(body)
  local fence_epoch, fence, max_deadline_ms, retention_ms
  fence_epoch, fence, limit, max_deadline_ms, retention_ms, sweep_origin = unpack_record(body)
  local settle_until = live()
  local reaping = call('HMGET', META, 'fence', 'condemned')
  condemned = tonumber(reaping[2] or 0)
  if fence_epoch ~= epoch or fence < tonumber(reaping[1]) then
    return { 'refused', epoch, now }
  end

  clamp(max_deadline_ms)
  forget_seen(retention_ms)
  local list = overdue()
  local full = #list >= limit
  list = drop_tombs(list)
  if now < settle_until then
    return { 'ok', epoch, now, 0, settle_until - now }
  end
  local closed = 0
  for _, entry in ipairs(list) do
    if closed < limit then
      closed = closed + settle_member(entry[1], entry[2], limit - closed)
    end
  end
  if closed >= limit or full then
    return { 'ok', epoch, now, closed, 0 }
  end
  return { 'ok', epoch, now, closed, next_due() }
end)
