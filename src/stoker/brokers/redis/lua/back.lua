-- Puts back what was popped from a list for a call that is gone: the end of a job for another that waits for it, or a
-- marker, of which there is at most one.
-- KEYS[1]: the list; ARGV[1]: what was popped.
if ARGV[1] ~= '1' then
  redis.call('RPUSH', KEYS[1], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], 60000)
elseif redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('RPUSH', KEYS[1], '1')
end
return 1
