-- Closes a session and leaves a tombstone for its connection.
--
-- ARGV: 10 owner   11 device   12 conn   13 rev   14 reason (code)   15 origin   16 tomb_ms
-- Answers: ok epoch now committed | superseded epoch now conn

local owner, device = ARGV[10], ARGV[11]
local conn, rev = tonumber(ARGV[12]), tonumber(ARGV[13])

local person = read_person(call('HGET', PEOPLE, owner))
local old, place = find(person, device)
if old and old[2] > conn then
  return { 'superseded', epoch, now, old[2] }
end
if old and old[2] == conn and rev <= old[3] then
  return { 'ok', epoch, now, 0 }
end

bury(owner .. '\31' .. device, conn, tonumber(ARGV[16]))
if not old then
  return { 'ok', epoch, now, 0 }
end
remove_session(owner, person, place, tonumber(ARGV[14]), ARGV[15])
return { 'ok', epoch, now, 1 }
