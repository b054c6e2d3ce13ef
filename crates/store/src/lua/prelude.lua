-- What every write begins with: the epoch (steps 1 to 3), and the way to commit a change.

-- How the codec writes "none", an empty list, and an empty string.
local NONE, EMPTY, NOBODY = '\194', '\144', '\160'
-- Whether the epoch began before this call.
local same_epoch
-- Format, epoch and number of the last change, packed: records and people begin with it.
local version

local function write_head()
  call('HSET', META, 'head', pack(shards, epoch, seq, unsettled, log_bytes, log_first))
end

-- The oldest entries of the log go, 64 at most, never the newest.
local function trim_log()
  -- The log has no gaps, so its numbers tell its length.
  local length, gone = seq - log_first + 1, 0
  for _, entry in ipairs(call('XRANGE', LOG, '-', '+', 'COUNT', 64)) do
    local left = length - gone
    if left <= 1 or (left <= log_len - 63 and log_bytes <= log_max_bytes) then
      break
    end
    gone = gone + 1
    log_bytes = log_bytes - #entry[2][2]
  end
  log_first = log_first + gone
  call('XTRIM', LOG, 'MAXLEN', '=', length - gone)
end

-- Numbers, logs and pushes one change; rooms, session and prefs come packed. `seq` is recorded
-- at once: an error later in the call must not leave a log that is ahead of it.
local function commit(event, reason, owner, device, rooms_before, session, prefs, origin)
  seq = seq + 1
  version = pack(1, epoch, seq)
  -- 156 begins an array of twelve.
  local record = '\156' .. version .. pack(now, event, reason, owner, device)
    .. rooms_before .. session .. prefs .. (origin == '' and NOBODY or pack(origin))
  call('XADD', LOG, format('%d-0', seq), 'e', record)
  log_bytes = log_bytes + #record
  if seq - log_first + 1 > log_len or log_bytes > log_max_bytes then
    trim_log()
  end
  write_head()
  call('SPUBLISH', CHANNEL, record)
end

-- What stands under '' in hashes that are looked into with every open and close: longer than what
-- Redis keeps in one list (hash-max-listpack-value), which it would search from end to end.
local LONG = '.................................................................'

local function give_birth(configured)
  shards = configured
  call('HSET', META, 'fence', 0, 'alive', format('%d', now), 'condemned', 0)
  call('HSET', PEOPLE, '', '')
  call('ZADD', DEADLINES, '+inf', '')
  call('ZADD', HELD, 0, '')
  call('ZADD', SEEN, '+inf', '')
  call('HSET', TOMBS, '', LONG)
  call('HSET', PREFS, '', LONG)
  -- Only remains of a shard whose meta was deleted by hand: its numbers would be in the way.
  call('DEL', LOG)
end

local function begin(keys, args)
  local configured = look(keys, args)
  same_epoch = shards and recorded_replid == replid and highest <= epoch
  if same_epoch then
    return
  end
  if not shards then
    give_birth(configured)
  end
  epoch = math.max(epoch, now, highest) + 1 + nonce
  unsettled = 1
  call('HSET', META, 'replid', replid, 'settle_until', format('%d', now + settle_ms))
  commit(0, 0, '', '', EMPTY, NONE, NONE, '')
end

local function writing(name, run)
  redis.register_function(PREFIX .. name, function(keys, args)
    begin(keys, args)
    return run(args[3])
  end)
end

-- One that writes nothing, which Redis runs even when it takes no writes.
local function reading(name, run)
  redis.register_function({
    function_name = PREFIX .. name,
    callback = function(keys, args)
      look(keys, args)
      return run(args[3])
    end,
    flags = { 'no-writes' },
  })
end
