-- Opens a session, or moves it to its new holder.
--
-- Body: owner (tenant 0x1F user), device, holder, conn, rev, opened_at, rooms, state (a string),
--       prefs carried, or false, origin, holder_ms
-- Answers: ok epoch now committed session prefs | superseded epoch now conn | gone epoch now

-- Brings what was carried through a loss up to date. Answers whether anything is newer.
local function take_carried(prefs, carried)
  local status, who = carried[2] > prefs[2], carried[4] > prefs[4]
  if status then
    prefs[1], prefs[2], prefs[6] = carried[1], carried[2], carried[6]
  end
  if who then
    prefs[3], prefs[4] = carried[3], carried[4]
  end
  return status or who
end

writing('open', function(body)
  local owner, device, holder, conn, rev, opened_at, rooms, state, carried, origin, holder_ms =
    unpack_record(body)
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

  -- Whoever has a lease is not condemned: to be condemned takes it away.
  local lease = call('ZSCORE', DEADLINES, 'h' .. holder)
  if not lease then
    local due = call('ZMSCORE', DEADLINES, 'd' .. holder, 'c' .. holder, 'e' .. holder)
    if due[2] or due[3] then
      return { 'gone', epoch, now }
    end
    lease = due[1]
  end
  if lease and tonumber(lease) < now then
    return { 'gone', epoch, now }
  end

  -- Everything that can be unreadable is read before the first write.
  local prefs_bytes = call('HGET', PREFS, owner) or DEFAULT
  local prefs = unpack_record(prefs_bytes)
  rooms = with_times(rooms, old)
  if old then
    opened_at = old[4]
  end
  if opened_at == 0 or (not old and opened_at > now) then
    opened_at = now
  end
  local session = { holder, conn, rev, opened_at, rooms, state }
  local session_bytes = pack(session)

  if not lease then
    call('ZADD', DEADLINES, format('%d', now + holder_ms), 'h' .. holder)
  end
  if carried and take_carried(prefs, carried) then
    prefs_bytes = pack(prefs)
    call('HSET', PREFS, owner, prefs_bytes)
  end
  if not old or old[1] ~= holder then
    if old then
      release(old, key)
    end
    call('ZADD', HELD, 0, holder .. '\31' .. key)
  end

  local committed = 0
  if not (old and old[4] == opened_at and old[6] == state and same_list(old[5], rooms)
      and same_list(prefs, person[4])) then
    committed = 1
    commit(2, 0, owner, device, names_of(old), session_bytes, prefs_bytes, origin)
  end
  if not person or (old and #person == 6) then
    if committed == 0 then
      version = pack(1, person[2], person[3])
    end
    write_only(owner, prefs_bytes, device, session_bytes)
  else
    person[4] = prefs
    put(person, device, session)
    if committed == 1 then
      person[2], person[3] = epoch, seq
    end
    call('HSET', PEOPLE, owner, pack(person))
  end
  return { 'ok', epoch, now, committed, session_bytes, prefs_bytes }
end)
