-- Forgets a user: sessions as `kick` does, then preferences, contacts and last seen.
--
-- ARGV: 10 owner   11 tomb_ms
-- Answers: ok epoch now

local owner = ARGV[10]
kick(owner, '', tonumber(ARGV[11]))
local had_prefs = call('HDEL', PREFS, owner)
call('HDEL', PREFS, 'c\31' .. owner)
call('ZREM', SEEN, owner)
if had_prefs == 1 then
  commit(3, 0, owner, '', EMPTY, NONE, DEFAULT, '')
end
return { 'ok', epoch, now }
