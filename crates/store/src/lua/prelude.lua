-- What every write begins with: the epoch (steps 1 to 3), and the way to commit a change.

local epoch, seq = tonumber(meta[2] or 0), tonumber(meta[3] or 0)
local log_bytes, log_first = tonumber(meta[6] or 0), tonumber(meta[7] or 1)

-- How the codec writes "none", and an empty list.
local NONE, EMPTY = '\194', '\144'

-- Numbers, logs and pushes one change; rooms, session and prefs come packed. `seq` is recorded
-- at once: an error later in the script must not leave a log that is ahead of it.
local function commit(event, reason, owner, device, rooms_before, session, prefs, origin)
  seq = seq + 1
  local digits = format('%.0f', seq)
  -- 156 begins an array of twelve.
  local record = '\156' .. pack(1, epoch, seq, now, event, reason, owner, device)
    .. rooms_before .. session .. prefs .. pack(origin)
  call('XADD', LOG, digits .. '-0', 'e', record)
  log_bytes = log_bytes + #record
  -- The log has no gaps, so its numbers tell its length.
  local length, most, bytes = seq - log_first + 1, tonumber(ARGV[8]), tonumber(ARGV[9])
  if length > most or log_bytes > bytes then
    -- The oldest go, 64 at most, never the newest.
    local gone = 0
    for _, entry in ipairs(call('XRANGE', LOG, '-', '+', 'COUNT', 64)) do
      local left = length - gone
      if left <= 1 or (left <= most - 63 and log_bytes <= bytes) then
        break
      end
      gone = gone + 1
      log_bytes = log_bytes - #entry[2][2]
    end
    log_first = log_first + gone
    call('XTRIM', LOG, 'MAXLEN', '=', length - gone)
    call('HSET', META, 'log_first', format('%.0f', log_first))
  end
  call('HSET', META, 'seq', digits, 'log_bytes', format('%.0f', log_bytes))
  call('SPUBLISH', ARGV[1], record)
end

local same_epoch = meta[1] and meta[4] == replid and tonumber(ARGV[3]) <= epoch
if not meta[1] then
  -- Birth.
  call('HSET', META, 'shards', ARGV[2], 'epoch', 0, 'seq', 0, 'fence', 0, 'log_bytes', 0,
    'log_first', 1, 'alive', format('%.0f', now), 'condemned', 0)
  call('HSET', PEOPLE, '', '')
  call('ZADD', DEADLINES, '+inf', '')
  call('ZADD', HELD, 0, '')
  call('ZADD', SEEN, '+inf', '')
  call('HSET', TOMBS, '', '')
  call('HSET', PREFS, '', '')
  -- Only remains of a shard whose meta was deleted by hand: its numbers would be in the way.
  call('DEL', LOG)
end
if not same_epoch then
  epoch = math.max(epoch, now, tonumber(ARGV[3])) + 1 + tonumber(ARGV[4])
  call('HSET', META, 'epoch', format('%.0f', epoch), 'replid', replid,
    'settle_until', format('%.0f', now + tonumber(ARGV[6])), 'unsettled', 1)
  commit(0, 0, '', '', EMPTY, NONE, NONE, '')
end
