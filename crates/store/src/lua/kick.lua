-- Closes all sessions of a user, or that of one device, whatever their connection.
--
-- Body: owner, device, or "" for all, tomb_ms
-- Answers: ok epoch now devices

writing('kick', function(body)
  local owner, device, tomb_ms = unpack_record(body)
  return { 'ok', epoch, now, kick(owner, device, tomb_ms) }
end)
