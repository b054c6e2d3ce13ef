-- Changes the state of an open session.
--
-- ARGV: 10 owner   11 device   12 conn   13 rev   14 rooms (packed)   15 state (packed)
--       16 origin
-- Answers: ok epoch now committed session | superseded epoch now conn | unknown epoch now

local owner, device = ARGV[10], ARGV[11]
local conn, rev = tonumber(ARGV[12]), tonumber(ARGV[13])

local person = read_person(call('HGET', PEOPLE, owner))
local old = find(person, device)
if not old or old[2] < conn then
  return { 'unknown', epoch, now }
end
if old[2] > conn then
  return { 'superseded', epoch, now, old[2] }
end
if rev <= old[3] then
  return { 'ok', epoch, now, 0, pack(old) }
end

local rooms = with_times(unpack_record(ARGV[14]), old)
local session = { old[1], conn, rev, old[4], rooms, ARGV[15] }
local session_bytes = pack(session)
local committed = 0
put(person, device, session)
if old[6] ~= session[6] or not same_list(old[5], rooms) then
  committed = 1
  commit(2, 0, owner, device, names_of(old), session_bytes, pack(person[4]), ARGV[16])
  person[2], person[3] = epoch, seq
end
call('HSET', PEOPLE, owner, pack(person))
return { 'ok', epoch, now, committed, session_bytes }
