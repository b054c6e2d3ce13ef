-- Where the log stands, and a part of it. Writes nothing.
--
-- ARGV: 10 after (an entry's number)   11 limit
-- Answers: ok epoch now seq first settling entries | unborn 0 now

if not meta[1] then
  return { 'unborn', 0, now }
end
local oldest = call('XRANGE', LOG, '-', '+', 'COUNT', 1)
local first = oldest[1] and tonumber(string.match(oldest[1][1], '^%d+')) or 0
local entries = {}
if ARGV[11] ~= '0' then
  for n, entry in ipairs(call('XRANGE', LOG, '(' .. ARGV[10] .. '-0', '+', 'COUNT', ARGV[11])) do
    entries[n] = entry[2][2]
  end
end
local settling = (meta[5] == '1' or meta[4] ~= replid) and 1 or 0
return { 'ok', tonumber(meta[2]), now, tonumber(meta[3]), first, settling, entries }
