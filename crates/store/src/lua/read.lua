-- All that is known of some users. Writes nothing.
--
-- Body: a list of the users (tenant 0x1F user), 500 at most
-- Answers: ok epoch now settling people prefs seen, the last three with one place for each
--          user | unborn 0 now

reading('read', function(body)
  if not shards then
    return { 'unborn', 0, now }
  end
  local users = unpack_record(body)
  return {
    'ok', epoch, now, is_settling(),
    call('HMGET', PEOPLE, unpack(users)),
    call('HMGET', PREFS, unpack(users)),
    call('ZMSCORE', SEEN, unpack(users)),
  }
end)
