-- Moves the one deadline of all sessions that a gateway holds in the shard.
--
-- Body: holder, h (usual) or d (drains), ms
-- Answers: ok epoch now held | gone epoch now

writing('renew', function(body)
  local holder, letter, ms = unpack_record(body)
  live()
  local due = call('ZMSCORE', DEADLINES, 'h' .. holder, 'd' .. holder)
  if not due[1] and not due[2] then
    return { 'gone', epoch, now }
  end
  call('ZADD', DEADLINES, format('%d', now + ms), letter .. holder)
  if letter == 'h' and due[2] then
    call('ZREM', DEADLINES, 'd' .. holder)
  elseif letter == 'd' and due[1] then
    call('ZREM', DEADLINES, 'h' .. holder)
  end
  -- 0x20 comes right after the 0x1F that ends the holder's name.
  local held = call('ZLEXCOUNT', HELD, '[' .. holder .. '\31', '(' .. holder .. '\32')
  return { 'ok', epoch, now, held }
end)
