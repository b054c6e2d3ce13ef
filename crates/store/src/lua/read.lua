-- All that is known of some users. Writes nothing.
--
-- ARGV: from 10 on the users (tenant 0x1F user), 500 at most
-- Answers: ok epoch now settling people prefs seen, the last three with one place for each
--          user | unborn 0 now

if not meta[1] then
  return { 'unborn', 0, now }
end
local users = { unpack(ARGV, 10) }
return {
  'ok', tonumber(meta[2]), now, (meta[5] == '1' or meta[4] ~= replid) and 1 or 0,
  call('HMGET', PEOPLE, unpack(users)),
  call('HMGET', PREFS, unpack(users)),
  call('ZMSCORE', SEEN, unpack(users)),
}
