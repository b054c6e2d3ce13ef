-- What every function begins with: its names, the time, the server, the shard.
--
-- Keys, the same eight for every function, so that a slot in migration refuses a call before it
-- wrote: people deadlines held log meta seen tombs prefs
--
-- Arguments, the same three for every function:
--   1 channel   where changes are pushed
--   2 head      packed one behind another: shards (as the caller is configured), seen (the highest
--               epoch of this shard that the caller has seen), nonce (the random part of a new
--               epoch), clock (0 for the server's, else ms: tests), settle_ms, alive_gap_ms,
--               log_len, log_max_bytes
--   3 body      the function's own, packed; each file says what is in it
--
-- Answers are arrays: a status word, the epoch, now, and what the function adds.
-- Errors: `ADSUM_SHARDS <stored>`, `ADSUM_FORMAT <format>`.
--
-- Strings are compared with == only: < follows the server's locale, and ids go by bytes.
-- Numbers become text by format('%d', n): Lua's own way gives 1.7e+12. Arguments and what is read
-- with every call are packed into few strings: for each one Redis and Lua make several objects.

-- Redis has these only while a function runs.
local call, pack, unpack_record, unpack_some, format

-- Of the call that runs: one at a time does.
local PEOPLE, DEADLINES, HELD, LOG, META, SEEN, TOMBS, PREFS, CHANNEL
local highest, nonce, settle_ms, alive_gap_ms, log_len, log_max_bytes
local now, replid
-- What `meta` has under `head`; `shards` is nothing in a shard that was not born.
local shards, epoch, seq, unsettled, log_bytes, log_first
local recorded_replid

-- The server's name as it was read last, and when. A server has a new one when it was promoted or
-- started again. The latter forgets this; for the former it must have been something else than a
-- master meanwhile, which takes longer than this is believed. (Were it not so, the caller's
-- `seen` would still be above the epoch of whatever was lost.)
local REPLID_MS = 200
local known_replid, known_at

local function read_replid()
  -- A plain search and 40 digits: a pattern would take a third of the time of all this.
  local info = call('INFO', 'replication')
  local _, colon = string.find(info, 'master_replid:', 1, true)
  return string.sub(info, colon + 1, colon + 40)
end

-- Whether absence means nothing yet: 0 or 1.
local function is_settling()
  return (unsettled == 1 or recorded_replid ~= replid) and 1 or 0
end

-- Reads what every function needs. Answers the caller's number of shards if there are none yet.
local function look(keys, args)
  if not call then
    call, format = redis.call, string.format
    pack, unpack_record, unpack_some = cmsgpack.pack, cmsgpack.unpack, cmsgpack.unpack_limit
  end
  PEOPLE, DEADLINES, HELD, LOG, META, SEEN, TOMBS, PREFS = unpack(keys)
  CHANNEL = args[1]
  local configured
  configured, highest, nonce, now, settle_ms, alive_gap_ms, log_len, log_max_bytes =
    unpack_record(args[2])
  if now == 0 then
    local time = call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
    if not known_at or math.abs(now - known_at) > REPLID_MS then
      known_replid, known_at = read_replid(), now
    end
    replid = known_replid
  else
    replid = read_replid()
  end
  local meta = call('HMGET', META, 'head', 'replid')
  recorded_replid = meta[2]
  if not meta[1] then
    if call('HEXISTS', META, 'epoch') == 1 then
      -- As it was before the first release: to give birth would lose what is there.
      error({ err = 'ADSUM_FORMAT 0' })
    end
    shards, epoch, seq, unsettled, log_bytes, log_first = nil, 0, 0, 0, 0, 1
    return configured
  end
  shards, epoch, seq, unsettled, log_bytes, log_first = unpack_record(meta[1])
  if shards ~= configured then
    error({ err = 'ADSUM_SHARDS ' .. shards })
  end
end
