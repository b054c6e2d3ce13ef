-- Closes a user's sessions, or that of one device, in the order of devices, with tombstones.
local function kick(owner, device, tomb_ms)
  local KICKED = 5
  local person = read_person(call('HGET', PEOPLE, owner))
  local closed = {}
  local place = 5
  while person and place < #person do
    if device == '' or person[place] == device then
      closed[#closed + 1] = person[place]
      local key = owner .. '\31' .. person[place]
      bury(key, call('HGET', TOMBS, key), person[place + 1][2], tomb_ms)
      remove_session(owner, person, place, KICKED, '')
      write_down()
    else
      place = place + 2
    end
  end
  return closed
end
