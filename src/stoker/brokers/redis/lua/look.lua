-- Looks at jobs, queues and counters. Changes nothing but, perhaps, that time has passed.
-- ARGV[2]: {what, ...}. A job is shown as {id, queue, fields of the job, options}, with its payload and its extras.

local p = unpack_one(ARGV[2])

local function show(job)
  local own = option(job.option)
  local values = {}
  for place, name in ipairs(FIELDS) do
    values[place] = job[name]
  end
  local more = job.extra == 1 and call('HGETALL', extra_key(job)) or {}
  local before = job.state == BLOCKED and job.step > 0 and flows.steps_before(job, own.f) or {}
  return {pack({job.id, own.queue, values, before}), own.raw, call('HGET', P .. 'p:' .. bucket_of(job.seq), text(job.seq)), more}
end

local look = {}

function look.tick()
  return finish()
end

function look.job()
  local job = by_id(p.id)
  if not job then
    return refuse('not_found', '')
  end
  return finish(show(job))
end

-- Where the caller waits for the end, it is noted: `done:ID` gets an entry for each that waits.
function look.wait()
  local job = by_id(p.id)
  if not job then
    return refuse('not_found', '')
  end
  if job.state <= ACTIVE and p.waits then
    w('HINCRBY', P .. 'waits', text(job.id), 1)
  end
  return finish(show(job))
end

function look.unwait()
  if tonumber(call('HGET', P .. 'waits', text(p.id)) or 0) > 0 then
    if w('HINCRBY', P .. 'waits', text(p.id), -1) <= 0 then
      w('HDEL', P .. 'waits', text(p.id))
    end
  else
    w('LPOP', P .. 'done:' .. text(p.id))
  end
  return finish()
end

function look.find()
  local names = p.queue and {p.queue} or call('SMEMBERS', P .. 'queues')
  table.sort(names)
  for _, name in ipairs(names) do
    local held = keys.get(queue(name), 'c', p.custom_id)
    local job = held and by_id(held[1])
    if job then
      return finish(show(job))
    end
  end
  return refuse('not_found', '')
end

-- A page of jobs in id order. Looks at `steps` buckets at most.
function look.browse()
  local found, bytes, looked, last = {}, p.bytes, 0, p.after
  local command, from, till = 'ZRANGEBYSCORE', '-inf', '+inf'
  local after = p.after and floor(p.after / 64)
  if p.ascending then
    from = after and text(floor(after / 128)) or '-inf'
  else
    command, from, till = 'ZREVRANGEBYSCORE', after and text(floor(after / 128)) or '+inf', '-inf'
  end
  local buckets = call(command, P .. 'b', from, till, 'LIMIT', 0, p.steps + 1)
  for place, bucket in ipairs(buckets) do
    if place > p.steps then
      return finish({1, text(last), found})
    end
    local seqs = {}
    for _, seq in ipairs(call('HKEYS', P .. 'j:' .. bucket)) do
      seqs[#seqs + 1] = tonumber(seq)
    end
    if p.ascending then
      table.sort(seqs)
    else
      table.sort(seqs, function(a, b) return a > b end)
    end
    load_all(seqs)
    for _, seq in ipairs(seqs) do
      local is_behind = not after or (p.ascending and seq > after) or (not p.ascending and seq < after)
      if is_behind then
        if #found == p.limit or (bytes <= 0 and #found > 0) then
          return finish({1, text(last), found})
        end
        local job = load(seq)
        local own = option(job.option)
        local f = own.f
        local fits = (not p.queue or p.queue == own.queue) and (not p.state or p.state == job.state)
          and (not p.group_id or p.group_id == f.group_id) and (not p.name or p.name == f.name)
          and (not p.workflow or p.workflow == f.workflow) and (not p.pushed_from or job.at >= p.pushed_from)
          and (not p.pushed_before or job.at < p.pushed_before)
        if fits and p.tag then
          fits = false
          for _, tag in ipairs(f.tags or {}) do
            fits = fits or tag == p.tag
          end
        end
        if fits then
          local shown = show(job)
          found[#found + 1] = shown
          last = job.id
          bytes = bytes - job.size - #(extra(job, 'result') or '')
        end
      end
    end
    if #found == 0 or not p.ascending then
      last = (p.ascending and tonumber(bucket) * 128 + 127 or tonumber(bucket) * 128) * 64
    else
      last = math.max(last or 0, (tonumber(bucket) * 128 + 127) * 64)
    end
  end
  return finish({0, '', found})
end

function look.queues()
  return finish(call('SMEMBERS', P .. 'queues'))
end

function look.queue()
  local q = queue(p.queue)
  if not q.known then
    return refuse('not_found', '')
  end
  return finish(pack({q.paused, q.rate or NULL, q.concurrency, q.group, q.dead,
    call('HGET', queue_key(q.name), 'durability') or NULL}))
end

local COUNTS = {'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'bytes', 'pushed', 'started', 'completed', 'failed',
  'cancelled', 'expired', 'retried', 'timed_out', 'stalled', 'evicted', 'wait_ms', 'run_ms'}

function look.stats()
  local key, minute = P .. 'all', P .. 'minute'
  if p.queue then
    key, minute = queue_key(p.queue), queue_key(p.queue, ':minute')
  end
  local values = {}
  for place, value in ipairs(call('HMGET', key, unpack(COUNTS))) do
    values[place] = tonumber(value or 0)
  end
  local recent, by_second = 0, call('HGETALL', minute)
  for place = 1, #by_second, 2 do
    if tonumber(by_second[place]) > floor(now / 1000) - 60 then
      recent = recent + tonumber(by_second[place + 1])
    end
  end
  return finish(pack({values, recent}))
end

function look.dead()
  local q = queue(p.queue)
  local found, bytes = {}, p.bytes
  local key = queue_key(q.name, ':dead')
  local rank = p.after and call('ZRANK', key, text(floor(p.after / 64)))
  local start = rank and rank + 1 or 0
  for _, seq in ipairs(call('ZRANGE', key, start, start + p.steps)) do
    if #found >= p.steps then
      break
    end
    local job = load(tonumber(seq))
    local fits = (not p.entered_from or job.ended >= p.entered_from)
      and (not p.entered_before or job.ended < p.entered_before) and (not p.reason or job.reason == p.reason)
    if fits and p.tag then
      fits = false
      for _, tag in ipairs(o(job).tags or {}) do
        fits = fits or tag == p.tag
      end
    end
    if fits then
      if #found == p.limit or (bytes <= 0 and #found > 0) then
        return finish({1, found})
      end
      found[#found + 1] = show(job)
      bytes = bytes - job.size
    end
  end
  return finish({0, found})
end

function look.dead_stats()
  local q, reasons, oldest = queue(p.queue), {}, NULL
  local seqs = {}
  for place, seq in ipairs(call('ZRANGE', queue_key(q.name, ':dead'), 0, -1)) do
    seqs[place] = tonumber(seq)
  end
  load_all(seqs)
  for place, seq in ipairs(seqs) do
    local job = load(seq)
    reasons[job.reason] = (reasons[job.reason] or 0) + 1
    if place == 1 then
      oldest = job.ended
    end
  end
  local flat = {}
  for reason, number in pairs(reasons) do
    flat[#flat + 1] = {reason, number}
  end
  return finish(pack({#seqs, flat, oldest}))
end

-- The waiting jobs of a queue that stand in lists and sets, each once; of groups all, also behind the head.
local function waiting_jobs(q)
  local seen, found = {}, {}
  local function note(seqs)
    for place, seq in ipairs(seqs) do
      seqs[place] = tonumber(seq)
    end
    load_all(seqs)
    for _, seq in ipairs(seqs) do
      local job = load(seq)
      if not seen[seq] and job and job.state == WAITING then
        seen[seq] = true
        found[#found + 1] = job
      end
    end
  end
  for _, level in ipairs(call('ZRANGE', queue_key(q.name, ':levels'), 0, -1)) do
    for _, kind in ipairs({':f:', ':l:'}) do
      note(call('LRANGE', queue_key(q.name, kind .. level), 0, p.steps - 1))
    end
    for _, kind in ipairs({':o:', ':m:'}) do
      note(call('ZRANGE', queue_key(q.name, kind .. level), 0, p.steps - 1))
    end
  end
  for _, group in ipairs(call('SMEMBERS', queue_key(q.name, ':groups'))) do
    note(call('ZRANGE', group_key(q, group), 0, p.steps - 1))
  end
  return found
end

function look.priorities()
  local by_priority, flat = {}, {}
  for _, job in ipairs(waiting_jobs(queue(p.queue))) do
    local priority = o(job).priority or 0
    by_priority[priority] = (by_priority[priority] or 0) + 1
  end
  for priority, number in pairs(by_priority) do
    flat[#flat + 1] = {priority, number}
  end
  return finish(pack(flat))
end

local function comes_before(a, fa, b, fb)
  local pa, pb = fa.priority or 0, fb.priority or 0
  if pa ~= pb then
    return pa > pb
  end
  if (fa.lifo or false) ~= (fb.lifo or false) then
    return fa.lifo
  end
  if fa.lifo then
    return a.seq > b.seq
  end
  return a.seq < b.seq
end

function look.why()
  local job = by_id(p.id)
  if not job then
    return refuse('not_found', '')
  end
  if job.state >= ACTIVE then
    return finish(pack({job.state}))
  end
  local q, f = queue_of(job), o(job)
  local limited = NULL
  if q.rate then
    limits.fill(q)
    limited = q.whole <= 0 and limits.next_at(q) or NULL
  end
  local busy = NULL
  if f.group_id then
    local holder = tonumber(call('HGET', queue_key(q.name, ':h'), f.group_id) or nil)
    local head = tonumber(call('ZRANGE', group_key(q, f.group_id), 0, 0)[1])
    if holder then
      busy = holder ~= job.seq and holder * 64 or NULL
    elseif job.state == WAITING and head and head ~= job.seq then
      busy = head * 64
    end
  end
  local ahead = 0
  if job.state == WAITING then
    for _, other in ipairs(waiting_jobs(q)) do
      local g = o(other)
      if other.seq ~= job.seq and (comes_before(other, g, job, f)
        or (f.group_id and g.group_id == f.group_id and other.seq < job.seq)) then
        ahead = ahead + 1
      end
    end
  end
  local blocked = {}
  for place, edge in ipairs(unpack_one(extra(job, 'b') or pack({}))) do
    blocked[place] = edge[1]
  end
  if flows and job.state == BLOCKED and f.workflow then
    for _, first in ipairs(flows.steps_before(job, f)) do
      blocked[#blocked + 1] = first
    end
  end
  return finish(pack({job.state, q.paused, limited, q.concurrency > 0 and q.active >= q.concurrency, busy, blocked,
    job.state == DELAYED and job.due or NULL, ahead}))
end

return look[p.what]()
