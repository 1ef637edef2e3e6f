-- Everything that is due by now happens, each at its own time, at most `inspect_limit` of it in one script.

local TIMED_OUT = 'the delivery ran longer than its timeout_ms'
local STALLED = 'the lease ended: the worker neither settled the job nor renewed the lease'

local fire = {}

fire[DUE] = function(at, name)
  local job = by_id(tonumber(name))
  local q = queue_of(job)
  emit({16, at, H.tenant, q.name, {{job.id, 1}}})
  moves.leave(q, job)
  moves.to_pending(q, job, 0)
end

fire[TTL] = function(at, name)
  local job = by_id(tonumber(name))
  if job and job.state < ACTIVE and job.attempts == 0 and job.revived == 0 then
    moves.cancel(queue_of(job), job, EXPIRED, 'ttl_expired', at)
    edges.settle(at)
  end
end

fire[LEASE] = function(at, name)
  local job = by_id(tonumber(name))
  local timeout = o(job).timeout_ms or 0
  local has_timed_out = timeout > 0 and job.started + timeout == at
  moves.fail(queue_of(job), job, has_timed_out and 'timeout' or 'stalled', at,
    {error = has_timed_out and TIMED_OUT or STALLED, error_class = '', stack = ''})
  edges.settle(at)
end

fire[DEAD_RETRY] = function(at, name)
  local job = by_id(tonumber(name))
  local q = queue_of(job)
  if keys.taken(q, job, o(job)) then
    job.again = at + math.max(dead_of(q).auto_retry_interval_ms, 1000)
    save(job)
    arm_job(job.again, DEAD_RETRY, job)
  else
    moves.revive(q, job, at, true)
    edges.settle(at)
  end
end

fire[DEAD_AGE] = function(at, name)
  local job = by_id(tonumber(name))
  local q = queue_of(job)
  emit({24, at, H.tenant, q.name, {job.id}, 'expired'})
  moves.remove_dead(q, job)
end

fire[KEY] = function(_, name)
  keys.on_time(name)
end

fire[AGE] = function(at, name)
  if string.sub(name, 1, 1) == 'q' then
    forget_aged(queue(string.sub(name, 2)), at)
    return
  end
  local job = by_id(tonumber(name))
  moves.remove_ended(queue_of(job), job)
end

fire[KV] = function(_, name)
  w('HDEL', P .. 'kv', name)
  w('ZREM', P .. 'kvkeys', name)
end

fire[EDGES] = function(at, name)
  edges.settle_one(tonumber(string.sub(name, 1, 16)), tonumber(string.sub(name, 18)), at)
  edges.settle(at)
end

fire[FLOW] = function(at, name)
  flows.on_time(at, name)
  edges.settle(at)
end

local real_now = now
for step = 1, S.inspect_limit + 1 do
  local due = call('ZRANGEBYSCORE', P .. 'deadlines', '-inf', text(real_now), 'WITHSCORES', 'LIMIT', 0, 1)
  if not due[1] then
    break
  end
  local member, at = due[1], tonumber(due[2])
  local kind, name = string.sub(member, 1, 1), string.sub(member, 2)
  if kind == SCHEDULE or step > S.inspect_limit then
    finish()
    if kind == SCHEDULE then
      return {SLOT, now, at, sequence, record, lost, name}
    end
    return {MORE, now, at, sequence, record, lost}
  end
  w('ZREM', P .. 'deadlines', member)
  fire[kind](at, name)
  write_all()
end
