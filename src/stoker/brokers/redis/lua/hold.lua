-- A lease that one server has at a time: taken if it is free, renewed by the server that has it.
-- KEYS[1]: the lease; ARGV[1]: the server; ARGV[2]: for how many milliseconds, 0 = end it.
-- Answers 1 if the server has it now.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
if tonumber(ARGV[2]) > 0 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
redis.call('DEL', KEYS[1])
return 0
