-- Steps 4 and 5 of the epoch, for `renew` and `sweep`: a shard that neither came to for long
-- settles before it is swept; an epoch that has settled says so. Answers until when it settles.

local function live()
  local life = call('HMGET', META, 'alive', 'settle_until')
  local settle_until = tonumber(life[2])
  if same_epoch and tonumber(life[1]) < now - alive_gap_ms then
    settle_until = math.max(settle_until, now + settle_ms)
    call('HSET', META, 'alive', format('%d', now), 'settle_until', format('%d', settle_until))
  else
    call('HSET', META, 'alive', format('%d', now))
  end
  if unsettled == 1 and now >= settle_until then
    unsettled = 0
    commit(1, 0, '', '', EMPTY, NONE, NONE, '')
  end
  return settle_until
end
