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

-- Lists are filled and emptied again, call after call: a new one each time would cost more than
-- what is in it.
local function empty(list)
  for n = #list, 1, -1 do
    list[n] = nil
  end
end

local function add(list, one)
  list[#list + 1] = one
end

local function add_pair(list, one, two)
  local n = #list
  list[n + 1], list[n + 2] = one, two
end

-- Changes of this call that were not pushed yet, one behind another, and how long they are.
local pushes, push_bytes = {}, 0
-- As much as one push carries before the next one begins.
local PUSH_BYTES = 32768

local function push()
  if #pushes > 0 then
    call('SPUBLISH', CHANNEL, #pushes == 1 and pushes[1] or table.concat(pushes))
    empty(pushes)
    push_bytes = 0
  end
end

-- Numbers and logs one change; rooms, session and prefs come packed. The head is written and the
-- change pushed by `finish`, with all others of the call. Answers its record.
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
  push_bytes = push_bytes + #record
  add(pushes, record)
  if push_bytes > PUSH_BYTES then
    push()
  end
  return record
end

-- What is written together, each list for one command. Whatever reads the same again within one
-- call has it written down first.
local put_people, drop_people, hold, let_go = {}, {}, {}, {}
local put_tombs, put_deadlines, drop_deadlines, put_seen = {}, {}, {}, {}

local function write_list(command, key, list)
  -- Lua's unpack takes a few thousand; pairs stay together.
  for from = 1, #list, 2000 do
    call(command, key, unpack(list, from, math.min(from + 1999, #list)))
  end
  empty(list)
end

-- Last seen goes before the person who was there. Most lists are empty most of the time.
local function write_down()
  if put_seen[1] then
    write_list('ZADD', SEEN, put_seen)
  end
  if put_people[1] then
    write_list('HSET', PEOPLE, put_people)
  end
  if drop_people[1] then
    write_list('HDEL', PEOPLE, drop_people)
  end
  if let_go[1] then
    write_list('ZREM', HELD, let_go)
  end
  if hold[1] then
    write_list('ZADD', HELD, hold)
  end
  if put_tombs[1] then
    write_list('HSET', TOMBS, put_tombs)
  end
  if drop_deadlines[1] then
    write_list('ZREM', DEADLINES, drop_deadlines)
  end
  if put_deadlines[1] then
    write_list('ZADD', DEADLINES, put_deadlines)
  end
end

-- Whether a call failed while it wrote: it has left something in the lists.
local unfinished = false

local function forget()
  empty(put_seen)
  empty(put_people)
  empty(drop_people)
  empty(let_go)
  empty(hold)
  empty(put_tombs)
  empty(drop_deadlines)
  empty(put_deadlines)
  empty(pushes)
  push_bytes = 0
  unfinished = false
end

-- The end of every call that writes, also of one that failed. The head comes first: a log that is
-- ahead of it would take no entry any more.
local function finish(seq_before)
  unfinished = true
  if seq ~= seq_before then
    write_head()
  end
  write_down()
  push()
  unfinished = false
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

local function begin(configured)
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

local function begin_and_run(run, configured, body)
  begin(configured)
  return run(body)
end

local function writing(name, run)
  redis.register_function(PREFIX .. name, function(keys, args)
    local configured = look(keys, args)
    if unfinished then
      forget()
    end
    local seq_before = seq
    local done, answer = pcall(begin_and_run, run, configured, args[3])
    finish(seq_before)
    if not done then
      error(answer)
    end
    return answer
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
