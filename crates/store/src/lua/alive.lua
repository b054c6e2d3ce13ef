-- Steps 4 and 5 of the epoch, for `renew` and `sweep`: a shard that neither came to for long
-- settles before it is swept; an epoch that has settled says so.

local life = call('HMGET', META, 'alive', 'settle_until', 'unsettled')
local settle_until = tonumber(life[2])
if same_epoch and tonumber(life[1]) < now - tonumber(ARGV[7]) then
  settle_until = math.max(settle_until, now + tonumber(ARGV[6]))
  call('HSET', META, 'alive', format('%.0f', now), 'settle_until', format('%.0f', settle_until))
else
  call('HSET', META, 'alive', format('%.0f', now))
end
if life[3] == '1' and now >= settle_until then
  call('HSET', META, 'unsettled', 0)
  commit(1, 0, '', '', EMPTY, NONE, NONE, '')
end
