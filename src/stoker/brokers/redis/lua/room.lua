-- Asks for room before anything else: once a script has written, Redis lets it go on however full the memory is.
local asked = redis.pcall('SETRANGE', P .. 'room', 0, '')
if type(asked) == 'table' and asked.err then
  if not string.find(asked.err, 'OOM', 1, true) then
    return asked
  end
  return {REFUSED, now, -1, sequence, record, 0, 'memory_full',
    'the memory of Redis is full: work off jobs, or raise its maxmemory (' .. asked.err .. ')'}
end
has_room = true
