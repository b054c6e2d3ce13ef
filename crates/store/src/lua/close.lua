-- Closes a session and leaves a tombstone for its connection.
--
-- A close: owner device conn rev origin reason (code) tomb_ms
-- Answers: committed | WHOLE record | SUPERSEDED conn

local function close(key, person, standing, _, owner, device, conn, rev, origin, reason, tomb_ms)
  local old, place = find(person, device)
  if old and old[2] > conn then
    return SUPERSEDED, old[2]
  end
  if old and old[2] == conn and rev <= old[3] then
    return 0
  end

  bury(key, standing, conn, tomb_ms)
  if not old then
    return 0
  end
  local record = remove_session(owner, person, place, reason, origin)
  if #person < 5 and unsettled == 0 then
    return WHOLE, record
  end
  return 1
end
