-- Looks at jobs, queues and counters. Changes nothing but, perhaps, that time has passed.
-- ARGV[2]: {what, ...}.

local p = unpack_one(ARGV[2])

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

local function has_tag(f, tag)
  for _, one in ipairs(f.tags or {}) do
    if one == tag then
      return true
    end
  end
  return false
end

-- Whether a page shows the jobs of a kind: found out once for all of them.
local function fits(kind)
  if kind.fits == nil then
    local job, f = kind.job, kind.f
    kind.fits = (not p.queue or p.queue == kind.queue) and (not p.state or p.state == job.state)
      and (not p.group_id or p.group_id == f.group_id) and (not p.name or p.name == f.name)
      and (not p.workflow or p.workflow == f.workflow) and (not p.pushed_from or job.at >= p.pushed_from)
      and (not p.pushed_before or job.at < p.pushed_before) and (not p.tag or has_tag(f, p.tag))
  end
  return kind.fits
end

-- The numbers of the jobs of a bucket in the order of the page, and their rows.
local function rows_of(bucket)
  local seqs, rows, flat = {}, {}, call('HGETALL', P .. 'j:' .. bucket)
  for place = 1, #flat, 2 do
    local seq = tonumber(flat[place])
    seqs[#seqs + 1], rows[seq] = seq, flat[place + 1]
  end
  table.sort(seqs, function(a, b)
    if p.ascending then
      return a < b
    end
    return a > b
  end)
  return seqs, rows
end

-- A page of jobs in id order. Looks at `steps` buckets at most.
function look.browse()
  local found, bytes, last, edge_seen = {}, p.bytes, nil, nil
  local after = p.after and floor(p.after / 64)
  local edge = after and text(floor((after + (p.ascending and 1 or -1)) / BUCKET))
  local buckets
  if p.ascending then
    buckets = call('ZRANGEBYSCORE', P .. 'b', edge or '-inf', '+inf', 'LIMIT', 0, p.steps + 1)
  else
    buckets = call('ZREVRANGEBYSCORE', P .. 'b', edge or '+inf', '-inf', 'LIMIT', 0, p.steps + 1)
  end
  for place, bucket in ipairs(buckets) do
    if place > p.steps then
      return finish({1, text(edge_seen), found})
    end
    local seqs, rows = rows_of(bucket)
    for _, seq in ipairs(seqs) do
      local is_behind = not after or (p.ascending and seq > after) or (not p.ascending and seq < after)
      if is_behind and (#found == p.limit or (bytes <= 0 and #found > 0)) then
        return finish({1, text(last), found})
      end
      if is_behind and fits(kind_of(rows[seq])) then
        local job = unpacked(seq, rows[seq])
        found[#found + 1] = show(job)
        last = job.id
        bytes = bytes - job.size - #(extra(job, 'result') or '')
      end
    end
    edge_seen = (tonumber(bucket) * BUCKET + (p.ascending and BUCKET - 1 or 0)) * 64
  end
  return finish({0, '', found})
end

function look.queues()
  return finish(call('SMEMBERS', P .. 'queues'))
end

local function policy_of(name)
  local q = queue(name)
  return {q.paused, q.rate or NULL, q.concurrency, q.group, dead_of(q),
    call('HGET', queue_key(q.name), 'durability') or NULL}
end

function look.queue()
  if not queue(p.queue).known then
    return refuse('not_found', '')
  end
  return finish(pack(policy_of(p.queue)))
end

-- The counters of a queue, or of all of the tenant's, and the jobs completed in the last minute.
local function stats_of(name)
  local values = name and queue(name).counts or totals or unpack_one(n[8])
  local recent, by_second = 0, call('HGETALL', name and queue_key(name, ':minute') or P .. 'minute')
  for place = 1, #by_second, 2 do
    if tonumber(by_second[place]) > floor(now / 1000) - 60 then
      recent = recent + tonumber(by_second[place + 1])
    end
  end
  return {values, recent}
end

function look.stats()
  return finish(pack(stats_of(p.queue)))
end

-- The policies and the counters of some queues; those that are gone are left out.
function look.summaries()
  local found = {}
  for _, name in ipairs(p.queues) do
    if queue(name).known then
      found[#found + 1] = {name, policy_of(name), stats_of(name)}
    end
  end
  return finish(pack(found))
end

-- Dead letters from a score on, at most `steps` of them; the score where the next step goes on, or '' at the end.
local function dead_from(score)
  local flat = call('ZRANGEBYSCORE', queue_key(p.queue, ':dead'), score and '(' .. score or '-inf', '+inf', 'WITHSCORES',
    'LIMIT', 0, p.steps)
  local names = {}
  for place = 1, #flat, 2 do
    names[#names + 1] = flat[place]
  end
  local seqs = numbers_of(names)
  load_all(seqs)
  return seqs, #seqs == p.steps and flat[#flat] or ''
end

function look.dead()
  local found, bytes = {}, p.bytes
  local after = p.score or p.after and call('ZSCORE', queue_key(p.queue, ':dead'), text(floor(p.after / 64)))
  local seqs, following = dead_from(after)
  for _, seq in ipairs(seqs) do
    local job = load(seq)
    if (not p.entered_from or job.ended >= p.entered_from)
      and (not p.entered_before or job.ended < p.entered_before) and (not p.reason or job.reason == p.reason)
      and (not p.tag or has_tag(o(job), p.tag)) then
      if #found == p.limit or (bytes <= 0 and #found > 0) then
        return finish({1, '', found})
      end
      found[#found + 1] = show(job)
      bytes = bytes - job.size
    end
  end
  return finish({0, following, found})
end

function look.dead_stats()
  local reasons, flat = {}, {}
  local seqs, following = dead_from(p.score)
  for _, seq in ipairs(seqs) do
    local reason = load(seq).reason
    reasons[reason] = (reasons[reason] or 0) + 1
  end
  for reason, number in pairs(reasons) do
    flat[#flat + 1] = {reason, number}
  end
  return finish(pack({flat, seqs[1] and load(seqs[1]).ended or NULL}), following)
end

-- Calls `note` with the number and the kind of waiting jobs of a queue, each once: those of the highest priorities first,
-- then those behind the heads of groups. Looks at `p.steps` entries at most, of priorities from `lowest` on.
local function each_waiting(q, lowest, note)
  local seen, left = {}, p.steps
  local function look_at(command, key)
    local names = left > 0 and call(command, key, 0, left - 1) or {}
    local seqs = numbers_of(names)
    left = left - #names
    for place, raw in ipairs(read_rows('j:', seqs, names)) do
      local kind = raw and not seen[seqs[place]] and kind_of(raw)
      if kind and kind.job.state == WAITING then
        seen[seqs[place]] = true
        note(seqs[place], kind)
      end
    end
  end
  for _, level in ipairs(call('ZREVRANGEBYSCORE', queue_key(q.name, ':levels'), '+inf', lowest)) do
    look_at('LRANGE', queue_key(q.name, ':l:' .. level))
    look_at('ZRANGE', queue_key(q.name, ':m:' .. level))
    look_at('ZRANGE', queue_key(q.name, ':o:' .. level))
    look_at('LRANGE', queue_key(q.name, ':f:' .. level))
  end
  for _, group in ipairs(call('SMEMBERS', queue_key(q.name, ':groups'))) do
    look_at('ZRANGE', group_key(q, group))
  end
end

-- The places where jobs of a queue wait: lists and sets of each priority, and groups.
function look.places()
  local found = {}
  for _, level in ipairs(call('ZRANGE', queue_key(p.queue, ':levels'), 0, -1)) do
    for _, kind in ipairs({':f:', ':l:', ':o:', ':m:'}) do
      found[#found + 1] = kind .. level
    end
  end
  for _, group in ipairs(call('SMEMBERS', queue_key(p.queue, ':groups'))) do
    found[#found + 1] = ':g:' .. #group .. ':' .. group
  end
  return finish(found)
end

local SETS = {f = ':o:', l = ':m:'}

-- The waiting jobs of one place by priority: `steps` entries from one on. A job in a list and in the set beside it
-- counts in the set; the head of a group, which stands in a set, too, counts in its group.
function look.priorities()
  local letter, level, names = string.sub(p.place, 2, 2), string.sub(p.place, 4), nil
  local key, till = queue_key(p.queue, p.place), p.from + p.steps - 1
  local in_set = {}
  if SETS[letter] then
    names = call('LRANGE', key, p.from, till)
    in_set = #names > 0 and call('ZMSCORE', queue_key(p.queue, SETS[letter] .. level), unpack(names)) or {}
  else
    names = call('ZRANGE', key, p.from, till)
  end
  local by_priority, flat = {}, {}
  for place, raw in ipairs(read_rows('j:', numbers_of(names), names)) do
    local kind = raw and kind_of(raw)
    local priority = kind and kind.f.priority or 0
    local counts_here = letter == 'g' or (kind and not kind.f.group_id and text(priority) == level)
    if kind and kind.job.state == WAITING and not in_set[place] and counts_here then
      by_priority[priority] = (by_priority[priority] or 0) + 1
    end
  end
  for priority, number in pairs(by_priority) do
    flat[#flat + 1] = {priority, number}
  end
  return finish(pack(flat), #names)
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
    return a > b
  end
  return a < b
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
    local lowest = f.group_id and '-inf' or text(f.priority or 0)
    each_waiting(q, lowest, function(seq, kind)
      if seq ~= job.seq and (comes_before(seq, kind.f, job.seq, f)
        or (f.group_id and kind.f.group_id == f.group_id and seq < job.seq)) then
        ahead = ahead + 1
      end
    end)
  end
  local blocked = {}
  for place, edge in ipairs(unpack_one(extra(job, 'b') or pack({}))) do
    blocked[place] = edge[1]
  end
  if job.state == BLOCKED and f.workflow then
    for _, first in ipairs(flows.steps_before(job, f)) do
      blocked[#blocked + 1] = first
    end
  end
  return finish(pack({job.state, q.paused, limited, q.concurrency > 0 and q.counts[ACTIVE + 1] >= q.concurrency, busy, blocked,
    job.state == DELAYED and job.due or NULL, ahead}))
end

return look[p.what]()
