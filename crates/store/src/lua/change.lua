-- Changes the state of an open session.
--
-- A change: owner device conn rev origin rooms state (a string)
-- Answers: committed session | WHOLE record | UNKNOWN | SUPERSEDED conn

local function change(_, person, _, _, owner, device, conn, rev, origin, rooms, state)
  local old = find(person, device)
  if not old or old[2] < conn then
    return UNKNOWN
  end
  if old[2] > conn then
    return SUPERSEDED, old[2]
  end
  if rev <= old[3] then
    return 0, pack(old)
  end

  rooms = with_times(rooms, old)
  local session = { old[1], conn, rev, old[4], rooms, state }
  local session_bytes, prefs_bytes = pack(session), pack_prefs(person[4])
  local committed, record = 0, nil
  if old[6] ~= state or not same_list(old[5], rooms) then
    committed = 1
    record = commit(2, 0, owner, device, names_of(old), session_bytes, prefs_bytes, origin)
  end
  write_session(owner, person, device, session, session_bytes, prefs_bytes, committed)
  if record and is_alone(person, device) then
    return WHOLE, record
  end
  return committed, session_bytes
end
