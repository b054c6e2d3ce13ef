-- Opens a session, or moves it to its new holder.
--
-- ARGV: 10 owner (tenant 0x1F user)   11 device   12 holder   13 conn   14 rev   15 opened_at
--       16 rooms (packed)   17 state (packed)   18 prefs carried (packed, or "")   19 origin
--       20 holder_ms
-- Answers: ok epoch now committed session prefs | superseded epoch now conn | gone epoch now

local owner, device, holder = ARGV[10], ARGV[11], ARGV[12]
local conn, rev = tonumber(ARGV[13]), tonumber(ARGV[14])
local key = owner .. '\31' .. device

local person = read_person(call('HGET', PEOPLE, owner))
local old = find(person, device)
local above = superseded(old, tomb_of(call('HGET', TOMBS, key)), conn)
if above then
  return { 'superseded', epoch, now, above }
end
if old and old[2] == conn and rev <= old[3] then
  return { 'ok', epoch, now, 0, pack(old), pack(person[4]) }
end

local due = call('ZMSCORE', DEADLINES, 'h' .. holder, 'd' .. holder, 'c' .. holder, 'e' .. holder)
local lease = due[1] or due[2]
if due[3] or due[4] or (lease and tonumber(lease) < now) then
  return { 'gone', epoch, now }
end

-- Everything that can be unreadable is read before the first write.
local prefs_bytes = call('HGET', PREFS, owner) or DEFAULT
local prefs = unpack_record(prefs_bytes)
local rooms = with_times(unpack_record(ARGV[16]), old)
local opened_at = old and old[4] or tonumber(ARGV[15])
if opened_at == 0 or (not old and opened_at > now) then
  opened_at = now
end
local session = { holder, conn, rev, opened_at, rooms, ARGV[17] }
local session_bytes = pack(session)

if not lease then
  call('ZADD', DEADLINES, format('%.0f', now + tonumber(ARGV[20])), 'h' .. holder)
end
if ARGV[18] ~= '' then
  local carried = unpack_record(ARGV[18])
  local status, who = carried[2] > prefs[2], carried[4] > prefs[4]
  if status then
    prefs[1], prefs[2], prefs[6] = carried[1], carried[2], carried[6]
  end
  if who then
    prefs[3], prefs[4] = carried[3], carried[4]
  end
  if status or who then
    prefs_bytes = pack(prefs)
    call('HSET', PREFS, owner, prefs_bytes)
  end
end
if not old or old[1] ~= holder then
  if old then
    release(old, key)
  end
  call('ZADD', HELD, 0, holder .. '\31' .. key)
end

local committed = 0
if not (old and old[4] == opened_at and old[6] == session[6] and same_list(old[5], rooms)
    and same_list(prefs, person[4])) then
  committed = 1
  commit(2, 0, owner, device, names_of(old), session_bytes, prefs_bytes, ARGV[19])
end
if not person or (old and #person == 6) then
  -- The only session: no need to pack it again. 150 begins an array of six.
  local version
  if committed == 1 then
    version = pack(1, epoch, seq)
  else
    version = pack(1, person[2], person[3])
  end
  call('HSET', PEOPLE, owner, '\150' .. version .. prefs_bytes .. pack(device) .. session_bytes)
else
  person[4] = prefs
  put(person, device, session)
  if committed == 1 then
    person[2], person[3] = epoch, seq
  end
  call('HSET', PEOPLE, owner, pack(person))
end
return { 'ok', epoch, now, committed, session_bytes, prefs_bytes }
