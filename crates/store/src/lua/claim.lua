-- A new, higher fence for a reaper.
--
-- Answers: ok epoch now fence

return { 'ok', epoch, now, call('HINCRBY', META, 'fence', 1) }
