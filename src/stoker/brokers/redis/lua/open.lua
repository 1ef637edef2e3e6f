-- Opens a tenant: writes its format and settings if it is new. The first client's settings hold.
-- ARGV[1]: the settings; ARGV[2]: the time, in tests.
local format = redis.call('HGET', KEYS[1], 'format')
if format then
  return {0, format}
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return {1}
end
local now = ARGV[2]
if now == '' then
  local clock = redis.call('TIME')
  now = string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))
end
redis.call('HSET', KEYS[1], 'format', '1', 'sequence', '0', 'token', '0', 'record', '0', 'now', now, 'wall', now,
  'dirty', '0', 'settings', ARGV[1], 'option', '0',
  'all', cmsgpack.pack({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}))
return {0, '1'}
