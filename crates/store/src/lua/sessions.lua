-- People and their sessions, as the codec writes them:
--   person  = { 1, epoch, seq, prefs, device, session, device, session, … }   by device
--   session = { holder or '', conn, rev, opened_at, rooms, state }
--   rooms   = { room, since, meta or '', … }
--   prefs   = { status, version, visibility, version, contacts version, frozen_at,
--               shown_at }

-- How an operation of a session ended, if not with 0 or 1 for whether a change was committed.
local GONE, UNKNOWN, SUPERSEDED = 2, 2, 3
-- Or with 4 and the record of the change, if that is all there is to say of its owner.
local WHOLE = 4

-- Prefs of those who never set any, packed and not. Nobody may change the latter.
local DEFAULT, NEVER_SET = '\151\0\0\0\0\0\0\0', { 0, 0, 0, 0, 0, 0, 0 }
local INVISIBLE = 4

-- Packed; of those who never set any no version is above 0.
local function pack_prefs(prefs)
  if prefs == NEVER_SET or (prefs[2] == 0 and prefs[4] == 0 and prefs[5] == 0) then
    return DEFAULT
  end
  return pack(prefs)
end

-- 150 begins an array of six: a person with one session, a session.
local SIX = 150

-- A person with one session who never set any prefs, as most are: read piece by piece, with
-- fewer tables within tables. Nothing if it is not like that.
local function read_plain(raw)
  local at, layout, person_epoch, person_seq = unpack_some(raw, 3, 1)
  if layout ~= 1 or string.sub(raw, at + 1, at + #DEFAULT) ~= DEFAULT then
    return
  end
  local device, session_at, left
  session_at, device = unpack_some(raw, 1, at + #DEFAULT)
  if string.byte(raw, session_at + 1) ~= SIX then
    return
  end
  local holder, conn, rev, opened_at, rooms, state
  left, holder, conn, rev, opened_at, rooms, state = unpack_some(raw, 6, session_at + 1)
  if left == -1 and state then
    local session = { holder, conn, rev, opened_at, rooms, state }
    return { layout, person_epoch, person_seq, NEVER_SET, device, session }
  end
end

local function read_person(raw)
  if raw then
    local person = string.byte(raw, 1) == SIX and read_plain(raw) or unpack_record(raw)
    if person[1] ~= 1 then
      error({ err = 'ADSUM_FORMAT ' .. tostring(person[1]) })
    end
    return person
  end
end

-- Whether somebody has no session but this one, as far as that is known: not while it settles.
local function is_alone(person, device)
  return unsettled == 0 and (not person or #person == 6 and person[5] == device)
end

-- The device's session and its place, or nothing.
local function find(person, device)
  if person then
    for i = 5, #person, 2 do
      if person[i] == device then
        return person[i + 1], i
      end
    end
  end
end

-- Puts a session in its place; devices are in the order of their bytes.
local function put(person, device, session)
  local _, place = find(person, device)
  if place then
    person[place + 1] = session
    return
  end
  local function comes_before(other)
    for i = 1, math.min(#device, #other) do
      local a, b = string.byte(device, i), string.byte(other, i)
      if a ~= b then
        return a < b
      end
    end
    return #device < #other
  end
  place = #person + 1
  while place > 5 and comes_before(person[place - 2]) do
    place = place - 2
  end
  table.insert(person, place, session)
  table.insert(person, place, device)
end

-- Writes a person who has this session only: no need to pack it all again. `version` is the
-- person's.
local function write_only(owner, prefs_bytes, device, session_bytes)
  add_pair(put_people, owner, '\150' .. version .. prefs_bytes .. pack(device) .. session_bytes)
end

-- The rooms as given, with the time of every stay that is known already; one that the caller
-- gave counts if it can be true.
local function with_times(rooms, old)
  local stays, known = old and old[5], nil
  for i = 1, #rooms, 3 do
    local since = rooms[i + 1]
    if since == 0 or since > now then
      since = now
    end
    if old and stays[i] == rooms[i] then
      -- Both are in order, so most rooms are where they were.
      since = stays[i + 1]
    elseif old then
      if not known then
        known = {}
        for j = 1, #stays, 3 do
          known[stays[j]] = stays[j + 1]
        end
      end
      since = known[rooms[i]] or since
    end
    rooms[i + 1] = since
  end
  return rooms
end

local function same_list(a, b)
  if #a ~= #b then
    return false
  end
  for i = 1, #a do
    if a[i] ~= b[i] then
      return false
    end
  end
  return true
end

-- The names of a session's rooms, packed.
local function names_of(session)
  if not session or #session[5] == 0 then
    return EMPTY
  end
  local names, rooms = {}, session[5]
  if #rooms == 3 then
    -- 145 begins an array of one.
    return '\145' .. pack(rooms[1])
  end
  for i = 1, #rooms, 3 do
    names[#names + 1] = rooms[i]
  end
  return pack(names)
end

-- The connection that a tombstone is for, while it is valid.
local function tomb_of(raw)
  if raw then
    local conn, till = string.match(raw, '^(%d+):(%d+)$')
    if now < tonumber(till) then
      return tonumber(conn)
    end
  end
end

-- The connection to go above, if an operation of a session comes too late.
local function superseded(old, tomb, conn)
  if (tomb and conn <= tomb) or (old and old[2] > conn) then
    return math.max(old and old[2] or 0, tomb or 0)
  end
end

-- Takes a session from what keeps it alive.
local function release(session, key)
  if session[1] == '' then
    add(drop_deadlines, 's' .. key)
  else
    add(let_go, session[1] .. '\31' .. key)
  end
end
