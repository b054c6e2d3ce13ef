-- Closes a session and leaves a tombstone for its connection.
--
-- Body: owner, device, conn, rev, reason (code), origin, tomb_ms
-- Answers: ok epoch now committed | superseded epoch now conn

writing('close', function(body)
  local owner, device, conn, rev, reason, origin, tomb_ms = unpack_record(body)
  local person = read_person(call('HGET', PEOPLE, owner))
  local old, place = find(person, device)
  if old and old[2] > conn then
    return { 'superseded', epoch, now, old[2] }
  end
  if old and old[2] == conn and rev <= old[3] then
    return { 'ok', epoch, now, 0 }
  end

  bury(owner .. '\31' .. device, conn, tomb_ms)
  if not old then
    return { 'ok', epoch, now, 0 }
  end
  remove_session(owner, person, place, reason, origin)
  return { 'ok', epoch, now, 1 }
end)
