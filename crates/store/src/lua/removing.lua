-- The end of a session.

-- Leaves a tombstone, never below the one that stands.
local function bury(key, standing, conn, tomb_ms)
  local old = tomb_of(standing)
  if old and old > conn then
    conn = old
  end
  local till = format('%d', now + tomb_ms)
  add_pair(put_tombs, key, format('%d', conn) .. ':' .. till)
  add_pair(put_deadlines, till, 't' .. key)
end

-- Removes one session: last seen first, then the person or what is left of it. Answers the record
-- of the change.
local function remove_session(owner, person, place, reason, origin)
  local device, session, prefs = person[place], person[place + 1], person[4]
  table.remove(person, place)
  table.remove(person, place)
  release(session, owner .. '\31' .. device)
  local last = #person < 5
  if last then
    local seen = prefs[1] == INVISIBLE and prefs[6] or now
    if seen ~= 0 then
      add_pair(put_seen, format('%d', seen), owner)
    end
    add(drop_people, owner)
  end
  local record = commit(2, reason, owner, device, names_of(session), NONE, pack_prefs(prefs), origin)
  if not last then
    person[2], person[3] = epoch, seq
    add_pair(put_people, owner, pack(person))
  end
  return record
end
