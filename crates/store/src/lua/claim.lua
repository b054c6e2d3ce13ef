-- A new, higher fence for a reaper.
--
-- Answers: ok epoch now fence

writing('claim', function()
  return { 'ok', epoch, now, call('HINCRBY', META, 'fence', 1) }
end)
