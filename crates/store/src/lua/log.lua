-- Where the log stands, and a part of it. Writes nothing.
--
-- Body: after (an entry's number), limit
-- Answers: ok epoch now seq first settling entries | unborn 0 now

reading('log', function(body)
  if not shards then
    return { 'unborn', 0, now }
  end
  local after, limit = unpack_record(body)
  local oldest = call('XRANGE', LOG, '-', '+', 'COUNT', 1)
  local first = oldest[1] and tonumber(string.match(oldest[1][1], '^%d+')) or 0
  local entries = {}
  if limit > 0 then
    local from = format('(%d-0', after)
    for n, entry in ipairs(call('XRANGE', LOG, from, '+', 'COUNT', limit)) do
      entries[n] = entry[2][2]
    end
  end
  return { 'ok', epoch, now, seq, first, is_settling(), entries }
end)
