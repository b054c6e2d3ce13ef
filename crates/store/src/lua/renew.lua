-- Moves the one deadline of all sessions that a gateway holds in the shard.
--
-- ARGV: 10 holder   11 h (usual) or d (drains)   12 ms
-- Answers: ok epoch now held | gone epoch now

local holder, letter = ARGV[10], ARGV[11]
local due = call('ZMSCORE', DEADLINES, 'h' .. holder, 'd' .. holder)
if not due[1] and not due[2] then
  return { 'gone', epoch, now }
end
call('ZADD', DEADLINES, format('%.0f', now + tonumber(ARGV[12])), letter .. holder)
if letter == 'h' and due[2] then
  call('ZREM', DEADLINES, 'd' .. holder)
elseif letter == 'd' and due[1] then
  call('ZREM', DEADLINES, 'h' .. holder)
end
-- 0x20 comes right after the 0x1F that ends the holder's name.
local held = call('ZLEXCOUNT', HELD, '[' .. holder .. '\31', '(' .. holder .. '\32')
return { 'ok', epoch, now, held }
