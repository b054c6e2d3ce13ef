-- Closes all sessions of a user, or that of one device, whatever their connection.
--
-- ARGV: 10 owner   11 device, or "" for all   12 tomb_ms
-- Answers: ok epoch now devices

local closed = kick(ARGV[10], ARGV[11], tonumber(ARGV[12]))
return { 'ok', epoch, now, closed }
