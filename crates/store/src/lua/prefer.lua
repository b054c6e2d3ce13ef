-- Writes one preference under its version.
--
-- Body: owner, setting: 1 status, 3 visibility, 5 contacts (its place in the record), version,
--       value (a code), or the list (a string), origin
-- Answers: ok epoch now prefs | stale epoch now prefs

local CONTACTS = 5

-- Puts a status or a visibility into the preferences, under its version.
local function set_preference(prefs, setting, version, value, owner, person)
  -- Visible again, or to more people: a lower code is a wider circle.
  if setting == 1 and prefs[1] == INVISIBLE and value ~= INVISIBLE
      or setting == 3 and value < prefs[3] then
    prefs[7] = now
  end
  if setting == 1 then
    if value ~= INVISIBLE then
      prefs[6] = 0
    elseif prefs[1] ~= INVISIBLE then
      prefs[6] = person and now or tonumber(call('ZSCORE', SEEN, owner) or 0)
    end
  end
  prefs[setting], prefs[setting + 1] = value, version
end

writing('prefer', function(body)
  local owner, setting, version, value, origin = unpack_record(body)
  local is_list, list_field = setting == CONTACTS, 'c\31' .. owner
  local prefs = unpack_record(call('HGET', PREFS, owner) or DEFAULT)
  local recorded = is_list and prefs[CONTACTS] or prefs[setting + 1]

  local function same_value()
    if is_list then
      return call('HGET', PREFS, list_field) == value
    end
    return prefs[setting] == value
  end

  local function write()
    call('HSET', PREFS, owner, pack(prefs))
    if is_list then
      call('HSET', PREFS, list_field, value)
    end
  end

  if version < recorded or (version == recorded and not same_value()) then
    return { 'stale', epoch, now, pack(prefs) }
  end
  if version == recorded then
    -- Written again, so that waiting for a replica means something.
    write()
    return { 'ok', epoch, now, pack(prefs) }
  end

  local person = read_person(call('HGET', PEOPLE, owner))
  if is_list then
    prefs[CONTACTS] = version
  else
    set_preference(prefs, setting, version, value, owner, person)
  end
  write()
  commit(3, 0, owner, '', EMPTY, NONE, pack(prefs), origin)
  if person then
    person[4] = prefs
    person[2], person[3] = epoch, seq
    call('HSET', PEOPLE, owner, pack(person))
  end
  return { 'ok', epoch, now, pack(prefs) }
end)
