-- A queue's policy. ARGV[2]: {queue, set: {field: value, ...}, refill}; ARGV[3], [4]: the parts of its record that
-- Python writes: from `rate_limit` on to `dead_letters`, and the durability.

local p = unpack_one(ARGV[2])
local q = queue(p.queue)
if not q.known and call('SCARD', P .. 'queues') >= S.queues_per_tenant_max then
  return refuse('limit_exceeded', 'queues')
end
make_known(q)
local key = queue_key(q.name)
if p.paused ~= nil then
  q.paused = p.paused
  w('HSET', key, 'paused', p.paused and '1' or '0')
end
if p.concurrency then
  q.concurrency = p.concurrency
  w('HSET', key, 'concurrency', text(p.concurrency))
end
if p.refill then
  if p.rate then
    q.rate, q.whole, q.rest, q.filled = p.rate, p.rate.burst, 0, now
    limits.store(q)
    w('HSET', key, 'burst', text(p.burst))
  else
    q.rate = false
    w('HDEL', key, 'rate', 'burst')
  end
end
if p.group then
  q.group = p.group
  w('HSET', key, 'group', p.group)
end
if p.dead then
  q.dead = p.dead
  w('HSET', key, 'dead', pack(p.dead))
end
if p.durability then
  w('HSET', key, 'durability', p.durability)
end
q.is_ready = true
local rate = q.rate and {q.rate.count, q.rate.per_ms, tonumber(call('HGET', key, 'burst') or 0)}
emit({20, now, H.tenant, q.name, q.paused, NULL, q.concurrency, q.group, NULL, p.refill or false,
  call('HGET', key, 'durability') or NULL}, 'c', pack({rate or NULL, dead_of(q)}))
if p.dead then
  moves.evict(q, dead_of(q).entries_max, now)
end
return finish()
