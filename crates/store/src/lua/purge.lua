-- Forgets a user: sessions as `kick` does, then preferences, contacts and last seen.
--
-- Body: owner, tomb_ms
-- Answers: ok epoch now

writing('purge', function(body)
  local owner, tomb_ms = unpack_record(body)
  kick(owner, '', tomb_ms)
  local had_prefs = call('HDEL', PREFS, owner)
  call('HDEL', PREFS, 'c\31' .. owner)
  call('ZREM', SEEN, owner)
  if had_prefs == 1 then
    commit(3, 0, owner, '', EMPTY, NONE, DEFAULT, '')
  end
  return { 'ok', epoch, now }
end)
