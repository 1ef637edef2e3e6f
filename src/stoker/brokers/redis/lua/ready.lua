-- The order in which jobs are pulled. Of each priority there are two lanes, lifo first; each is a list of jobs in push
-- order, and a sorted set of those that came back out of turn. A list may hold entries whose job is elsewhere by now.
-- A job may stand in the list and in the set: both say the same place, and the first that is taken counts.
--
-- Of a group only the head stands here; the others wait in `g:GROUP`. `h` names the job that holds a group.
-- exports: ready, group_key

ready = {}

local function lane(q, job, f)
  local priority = text(f.priority or 0)
  if f.lifo then
    return queue_key(q.name, ':l:' .. priority), queue_key(q.name, ':m:' .. priority), priority
  end
  return queue_key(q.name, ':f:' .. priority), queue_key(q.name, ':o:' .. priority), priority
end

local function add_level(q, priority)
  q.levels = q.levels or {}
  if not q.levels[priority] then
    q.levels[priority] = true
    w('ZADD', queue_key(q.name, ':levels'), priority, priority)
  end
  q.is_ready = true
end

function group_key(q, group)
  return queue_key(q.name, ':g:' .. #group .. ':' .. group)
end

-- Let the head of an idle group, and no other job of it, stand in the ready order.
function ready.offer(q, group)
  local key = group_key(q, group)
  local holder = call('HGET', queue_key(q.name, ':h'), group)
  local offered = call('HGET', queue_key(q.name, ':offered'), group)
  local head = not holder and call('ZRANGE', key, 0, 0)[1] or false
  if head == offered then
    return
  end
  if offered then
    local old = load(tonumber(offered))
    if old then
      local _, out, _ = lane(q, old, o(old))
      w('ZREM', out, offered)
    end
    w('HDEL', queue_key(q.name, ':offered'), group)
  end
  if head then
    local job = load(tonumber(head))
    local _, out, priority = lane(q, job, o(job))
    w('ZADD', out, head, head)
    w('HSET', queue_key(q.name, ':offered'), group, head)
    add_level(q, priority)
  end
end

-- A job waits. `fresh` ones are the youngest of their queue.
function ready.add(q, job, fresh)
  local f = o(job)
  job.state = WAITING
  save(job)
  if f.group_id then
    if call('HGET', queue_key(q.name, ':h'), f.group_id) == text(job.seq) then
      w('HDEL', queue_key(q.name, ':h'), f.group_id)
    end
    w('ZADD', group_key(q, f.group_id), text(job.seq), text(job.seq))
    w('SADD', queue_key(q.name, ':groups'), f.group_id)
    ready.offer(q, f.group_id)
    return
  end
  local list, out, priority = lane(q, job, f)
  if fresh then
    w(f.lifo and 'LPUSH' or 'RPUSH', list, text(job.seq))
    q.has_ready = true
  else
    w('ZADD', out, text(job.seq), text(job.seq))
  end
  add_level(q, priority)
end

-- A waiting job goes elsewhere. Its entry in a list stays, and is passed over.
function ready.leave(q, job)
  local f = o(job)
  if f.group_id then
    w('ZREM', group_key(q, f.group_id), text(job.seq))
    ready.offer(q, f.group_id)
    ready.drop_idle(q, f.group_id)
    return
  end
  local _, out = lane(q, job, f)
  w('ZREM', out, text(job.seq))
end

-- A group in which no job waits and that no job holds leaves no trace.
function ready.drop_idle(q, group)
  if call('EXISTS', group_key(q, group)) == 0 and not call('HGET', queue_key(q.name, ':h'), group) then
    w('SREM', queue_key(q.name, ':groups'), group)
  end
end

-- The job no longer holds its group.
function ready.free_group(q, job)
  local group = o(job).group_id
  if group and call('HGET', queue_key(q.name, ':h'), group) == text(job.seq) then
    w('HDEL', queue_key(q.name, ':h'), group)
    ready.offer(q, group)
    ready.drop_idle(q, group)
    q.is_ready = true
  end
end
