-- Writes one preference under its version.
--
-- ARGV: 10 owner   11 setting: 1 status, 3 visibility, 5 contacts (its place in the record)
--       12 version   13 value (a code), or the list (packed)   14 origin, or none
-- Answers: ok epoch now prefs | stale epoch now prefs

local owner, setting, version = ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12])
local is_list = setting == 5
local list_field = 'c\31' .. owner
local prefs = unpack_record(call('HGET', PREFS, owner) or DEFAULT)
local recorded = is_list and prefs[5] or prefs[setting + 1]

local function same_value()
  if is_list then
    return call('HGET', PREFS, list_field) == ARGV[13]
  end
  return prefs[setting] == tonumber(ARGV[13])
end

local function write()
  call('HSET', PREFS, owner, pack(prefs))
  if is_list then
    call('HSET', PREFS, list_field, ARGV[13])
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
  prefs[5] = version
else
  local value = tonumber(ARGV[13])
  if setting == 1 then
    if value ~= INVISIBLE then
      prefs[6] = 0
    elseif prefs[1] ~= INVISIBLE then
      prefs[6] = person and now or tonumber(call('ZSCORE', SEEN, owner) or 0)
    end
  end
  prefs[setting], prefs[setting + 1] = value, version
end
write()
commit(3, 0, owner, '', EMPTY, NONE, pack(prefs), ARGV[14] or '')
if person then
  person[4] = prefs
  person[2], person[3] = epoch, seq
  call('HSET', PEOPLE, owner, pack(person))
end
return { 'ok', epoch, now, pack(prefs) }
