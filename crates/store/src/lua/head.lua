-- What every script begins with: its names, the time, the server, the shard.
--
-- KEYS, the same eight in every script, so that a slot in migration refuses a script before it
-- wrote: people deadlines held log meta seen tombs prefs
--
-- ARGV, the head of every script:
--   1 channel        where changes are pushed
--   2 shards         as the caller is configured
--   3 seen           the highest epoch of this shard that the caller has seen
--   4 nonce          the random part of a new epoch
--   5 clock          0 for the server's, else ms (tests)
--   6 settle_ms
--   7 alive_gap_ms
--   8 log_len
--   9 log_max_bytes
-- A script's own arguments start at 10.
--
-- Answers are arrays: a status word, the epoch, now, and what the script adds.
-- Errors: `ADSUM_SHARDS <stored>`, `ADSUM_FORMAT <format>`.
--
-- Strings are compared with == only: < follows the server's locale, and ids go by bytes.
-- Numbers become text by format('%.0f', n): Lua's own way gives 1.7e+12. What is common to
-- scripts stands here and in the next files as plain steps rather than functions where it can:
-- making a function costs each call 0.1 µs.

local PEOPLE, DEADLINES, HELD, LOG, META, SEEN, TOMBS, PREFS =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local call, pack, unpack_record, format =
  redis.call, cmsgpack.pack, cmsgpack.unpack, string.format

local now = tonumber(ARGV[5])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- A plain search and 40 digits: a pattern would take a third of the time of all this.
local info = call('INFO', 'replication')
local _, colon = string.find(info, 'master_replid:', 1, true)
local replid = string.sub(info, colon + 1, colon + 40)
local meta =
  call('HMGET', META, 'shards', 'epoch', 'seq', 'replid', 'unsettled', 'log_bytes', 'log_first')
if meta[1] and meta[1] ~= ARGV[2] then
  return redis.error_reply('ADSUM_SHARDS ' .. meta[1])
end
