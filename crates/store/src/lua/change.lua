-- Changes the state of an open session.
--
-- Body: owner, device, conn, rev, rooms, state (a string), origin
-- Answers: ok epoch now committed session | superseded epoch now conn | unknown epoch now

writing('change', function(body)
  local owner, device, conn, rev, rooms, state, origin = unpack_record(body)
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

  rooms = with_times(rooms, old)
  local session = { old[1], conn, rev, old[4], rooms, state }
  local session_bytes, prefs_bytes = pack(session), pack_prefs(person[4])
  local committed = 0
  if old[6] ~= state or not same_list(old[5], rooms) then
    committed = 1
    commit(2, 0, owner, device, names_of(old), session_bytes, prefs_bytes, origin)
  end
  if #person == 6 then
    if committed == 0 then
      version = pack(1, person[2], person[3])
    end
    write_only(owner, prefs_bytes, device, session_bytes)
  else
    put(person, device, session)
    if committed == 1 then
      person[2], person[3] = epoch, seq
    end
    call('HSET', PEOPLE, owner, pack(person))
  end
  return { 'ok', epoch, now, committed, session_bytes }
end)
