-- Opens, changes and closes of sessions: what a caller had for the shard at one time. Each is judged
-- by itself, in order; what they need is read, and what they leave is written, for all at once.
--
-- Body: how many there are, 64 at most, and the operations one behind another: a letter (o, c or x: an
--       open, a change or a close) and what its own file says. Of no owner there are two.
-- Answers: ok epoch now, then one behind another what their own files say

-- How many values each takes behind its letter.
local WIDTH = { o = 11, c = 7, x = 7 }
local RULE = { o = open, c = change, x = close }

-- The fields of a hash that some of the operations need, each at its operation's number.
local function fetch(key, names, places)
  local found = {}
  if #names > 0 then
    for n, value in ipairs(call('HMGET', key, unpack(names))) do
      found[places[n]] = value
    end
  end
  return found
end

local function apply_all(list)
  local starts, keys, owners = {}, {}, {}
  local tombs, tombs_of, prefs, prefs_of = {}, {}, {}, {}
  local count, at = list[1], 2
  for n = 1, count do
    local letter, owner = list[at], list[at + 1]
    starts[n], owners[n], keys[n] = at, owner, owner .. '\31' .. list[at + 2]
    if letter ~= 'c' then
      add(tombs, keys[n])
      add(tombs_of, n)
    end
    if letter == 'o' then
      add(prefs, owner)
      add(prefs_of, n)
    end
    at = at + 1 + WIDTH[letter]
  end

  local people = call('HMGET', PEOPLE, unpack(owners))
  local standing, preferred = fetch(TOMBS, tombs, tombs_of), fetch(PREFS, prefs, prefs_of)
  -- What can't be read is found before the first write.
  for n = 1, count do
    people[n] = read_person(people[n])
    if preferred[n] then
      unpack_record(preferred[n])
    end
  end

  local answer = { 'ok', epoch, now }
  for n, start in ipairs(starts) do
    local letter = list[start]
    local first, second, third = RULE[letter](keys[n], people[n], standing[n], preferred[n],
      unpack(list, start + 1, start + WIDTH[letter]))
    add(answer, first)
    if second then
      add(answer, second)
    end
    if third then
      add(answer, third)
    end
  end
  return answer
end

writing('apply', function(body)
  local _, count, letter, owner, device, conn, rev, origin, a, b, c, d, e, f =
    unpack_some(body, 13)
  asked_for = nil
  if count > 1 then
    return apply_all({ unpack_record(body) })
  end
  -- One that comes alone, as most do, needs no lists.
  local key = owner .. '\31' .. device
  local person = read_person(call('HGET', PEOPLE, owner))
  local standing = letter ~= 'c' and call('HGET', TOMBS, key)
  local prefs = letter == 'o' and call('HGET', PREFS, owner)
  return { 'ok', epoch, now,
    RULE[letter](key, person, standing, prefs, owner, device, conn, rev, origin, a, b, c, d, e, f) }
end)
