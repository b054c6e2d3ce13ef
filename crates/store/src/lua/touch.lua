-- HTTP heartbeats: sessions that hold themselves, each judged by itself, in order.
--
-- Body: a list with nine for each, 500 of them at most: owner device conn rev ttl_ms rooms
--       state (a string) origin sessions_max
-- Answers: ok epoch now, then for each two: committed (0 or 1) and 0, or 2 and 0 if its owner has
--          too many sessions for another, or -1 and the connection that supersedes it

writing('touch', function(body)
  local beats = unpack_record(body)
  if #beats == 0 then
    return { 'ok', epoch, now }
  end

  -- What is read, for all at once, and before the first write.
  local owners, keys = {}, {}
  for i = 1, #beats, 9 do
    owners[#owners + 1] = beats[i]
    keys[#keys + 1] = beats[i] .. '\31' .. beats[i + 1]
  end
  local raw_people = call('HMGET', PEOPLE, unpack(owners))
  local tombs = call('HMGET', TOMBS, unpack(keys))
  local raw_prefs = call('HMGET', PREFS, unpack(owners))
  local people, prefs = {}, {}
  for n, owner in ipairs(owners) do
    if not prefs[owner] then
      people[owner] = read_person(raw_people[n])
      prefs[owner] = unpack_record(raw_prefs[n] or DEFAULT)
    end
  end

  local answer = { 'ok', epoch, now }
  local written, deadlines = {}, {}
  for n, owner in ipairs(owners) do
    local i = 9 * n - 8
    local device, conn, rev = beats[i + 1], beats[i + 2], beats[i + 3]
    local person = people[owner]
    local old = find(person, device)
    local above = superseded(old, tomb_of(tombs[n]), conn)
    local committed = 0
    local full = not old and person and #person >= 4 + 2 * beats[i + 8]
    if not above and not full and not (old and old[2] == conn and rev <= old[3]) then
      local rooms, state, own = with_times(beats[i + 5], old), beats[i + 6], prefs[owner]
      local session = { '', conn, rev, old and old[4] or now, rooms, state }
      if old and old[1] ~= '' then
        release(old, keys[n])
      end
      if not (old and old[6] == state and same_list(old[5], rooms)
          and same_list(own, person[4])) then
        committed = 1
        commit(2, 0, owner, device, names_of(old), pack(session), pack(own), beats[i + 7])
      end
      if not person then
        person = { 1, 0, 0, own }
        people[owner] = person
      end
      person[4] = own
      put(person, device, session)
      if committed == 1 then
        person[2], person[3] = epoch, seq
      end
      written[owner] = person
      deadlines[keys[n]] = beats[i + 4]
    end
    answer[2 * n + 2] = above and -1 or full and 2 or committed
    answer[2 * n + 3] = above or 0
  end

  -- Most have the same ttl: its deadline is spelled once.
  local spelled = {}
  for owner, person in pairs(written) do
    add_pair(put_people, owner, pack(person))
  end
  for key, ttl in pairs(deadlines) do
    if not spelled[ttl] then
      spelled[ttl] = format('%d', now + ttl)
    end
    add_pair(put_deadlines, spelled[ttl], 's' .. key)
  end
  return answer
end)
