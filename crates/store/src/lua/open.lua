-- Opens a session, or moves it to its new holder.
--
-- An open: owner device conn rev origin holder holder_ms opened_at rooms state (a string)
--          prefs carried, or false
-- Answers: committed session prefs | WHOLE record | GONE | SUPERSEDED conn

-- Of the call that runs: the holder that was asked for last, and whether it may hold more.
local asked_for, granted

-- Whether a holder is known and in time; one that is new is given its deadline. Whoever has a lease
-- is not condemned: to be condemned takes it away.
local function may_hold(holder, holder_ms)
  if asked_for == holder then
    return granted
  end
  local lease = call('ZSCORE', DEADLINES, 'h' .. holder)
  local condemned
  if not lease then
    local due = call('ZMSCORE', DEADLINES, 'd' .. holder, 'c' .. holder, 'e' .. holder)
    lease, condemned = due[1], due[2] or due[3]
  end
  local gone = condemned or (lease and tonumber(lease) < now)
  if not lease and not gone then
    add_pair(put_deadlines, format('%d', now + holder_ms), 'h' .. holder)
  end
  asked_for, granted = holder, not gone
  return granted
end

-- Brings what was carried through a loss up to date. Answers whether anything is newer.
local function take_carried(prefs, carried)
  local status, who = carried[2] > prefs[2], carried[4] > prefs[4]
  if status then
    prefs[1], prefs[2], prefs[6] = carried[1], carried[2], carried[6]
  end
  if who then
    prefs[3], prefs[4] = carried[3], carried[4]
  end
  if status or who then
    prefs[7] = math.max(prefs[7] or 0, carried[7] or 0)
  end
  return status or who
end

-- Writes a person whose session was put or changed.
local function write_session(owner, person, device, session, session_bytes, prefs_bytes, committed)
  if not person or #person == 6 and person[5] == device then
    if committed == 0 then
      version = pack(1, person[2], person[3])
    end
    return write_only(owner, prefs_bytes, device, session_bytes)
  end
  put(person, device, session)
  if committed == 1 then
    person[2], person[3] = epoch, seq
  end
  add_pair(put_people, owner, pack(person))
end

local function open(key, person, standing, prefs_bytes,
    owner, device, conn, rev, origin, holder, holder_ms, opened_at, rooms, state, carried)
  local old = find(person, device)
  local above = superseded(old, tomb_of(standing), conn)
  if above then
    return SUPERSEDED, above
  end
  if old and old[2] == conn and rev <= old[3] then
    return 0, pack(old), pack(person[4])
  end
  if not may_hold(holder, holder_ms) then
    return GONE
  end

  prefs_bytes = prefs_bytes or DEFAULT
  local prefs = prefs_bytes == DEFAULT and not carried and NEVER_SET or unpack_record(prefs_bytes)
  if carried and take_carried(prefs, carried) then
    prefs_bytes = pack(prefs)
    call('HSET', PREFS, owner, prefs_bytes)
  end
  rooms = with_times(rooms, old)
  if old then
    opened_at = old[4]
  end
  if opened_at == 0 or (not old and opened_at > now) then
    opened_at = now
  end
  local session = { holder, conn, rev, opened_at, rooms, state }
  local session_bytes = pack(session)
  if not old or old[1] ~= holder then
    if old then
      release(old, key)
    end
    add_pair(hold, 0, holder .. '\31' .. key)
  end

  local committed, record = 0, nil
  if not (old and old[4] == opened_at and old[6] == state and same_list(old[5], rooms)
      and same_list(prefs, person[4])) then
    committed = 1
    record = commit(2, 0, owner, device, names_of(old), session_bytes, prefs_bytes, origin)
  end
  if person then
    person[4] = prefs
  end
  local whole = record and is_alone(person, device)
  write_session(owner, person, device, session, session_bytes, prefs_bytes, committed)
  if whole then
    return WHOLE, record
  end
  return committed, session_bytes, prefs_bytes
end
