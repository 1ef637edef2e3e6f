-- The moves that all changes of jobs are made of: between places, into and out of a worker's hands, and to their ends.
-- There is one way into each place and one way out of it, so that no path forgets a slot, a group, a key or a waiter.
-- exports: moves, made_jobs, place_new, block, ended_jobs, looked_up

moves = {}
ended_jobs = {}

-- Most tenants have no edges and no callers that wait for a job: one look tells.
looked_up = {}
local function exists(name)
  if looked_up[name] == nil then
    looked_up[name] = call('EXISTS', P .. name) == 1
  end
  return looked_up[name]
end

-- --- pending -------------------------------------------------------------------------------------

-- From another place to waiting or, with a time when it is due, to delayed.
function moves.to_pending(q, job, due)
  if due > 0 then
    job.state, job.due = DELAYED, due
    save(job)
    arm_job(due, DUE, job)
    w('ZADD', queue_key(q.name, ':delayed'), text(due), text(job.seq))
    count_state(q, DELAYED, 1)
  else
    job.due = 0
    count_state(q, WAITING, 1)
    ready.add(q, job, false)
  end
end

-- New jobs, one by one, as `make_jobs` has made them.
function made_jobs(made)
  local found = {}
  for place, seq in ipairs(made.seqs) do
    found[place] = setmetatable(
      {seq = seq, id = seq * 64, option = made.option, state = WAITING, at = made.at, size = made.sizes[place]}, JOB)
  end
  return found
end

-- A new job waits, or is delayed.
function place_new(q, job, f, due)
  if due > 0 then
    moves.to_pending(q, job, due)
  else
    count_state(q, WAITING, 1)
    ready.add(q, job, true)
  end
end

-- A job waits for others; then, perhaps, for a time.
function block(q, job, due)
  job.state, job.due = BLOCKED, due
  count_state(q, BLOCKED, 1)
  w('ZADD', queue_key(q.name, ':blocked'), text(job.seq), text(job.seq))
  save(job)
end

-- The end of a job no longer concerns another one.
function moves.drop_edge(other, job)
  local key = P .. 'e:' .. text(other)
  w('ZREM', key, text(job.id))
  if call('EXISTS', key) == 0 then
    w('SREM', P .. 'edged', text(other))
  end
end

local function leave_blocked(job)
  local edges = extra(job, 'b')
  if edges then
    for _, edge in ipairs(unpack_one(edges)) do
      moves.drop_edge(edge[1], job)
    end
    drop_extra(job, 'b')
  end
end

-- A job leaves the place that its state names. What it becomes is up to the caller.
function moves.leave(q, job)
  local old = job.state
  count_state(q, old, -1)
  if old == WAITING then
    ready.leave(q, job)
  elseif old == DELAYED then
    disarm_job(DUE, job)
    w('ZREM', queue_key(q.name, ':delayed'), text(job.seq))
    job.due = 0
  elseif old == BLOCKED then
    leave_blocked(job)
    w('ZREM', queue_key(q.name, ':blocked'), text(job.seq))
    job.due = 0
  end
  return old
end

function moves.arm_ttl(job, f, not_before)
  if (f.ttl_ms or 0) > 0 then
    arm_job(math.max(not_before, job.at + f.ttl_ms), TTL, job)
  end
end

local function disarm_ttl(job, f)
  if (f.ttl_ms or 0) > 0 then
    disarm_job(TTL, job)
  end
end

-- --- deliveries ------------------------------------------------------------------------------------

function moves.extend(job, f, lease)
  job.heard, job.till = now, now + lease
  local fires = fires_at(job, f)
  if fires ~= job.fires then
    job.fires = fires
    arm_job(fires, LEASE, job)
  end
  save(job)
end

-- The one way out of a delivery. With `hold` the group of the job waits for it.
function moves.leave_active(q, job, hold)
  disarm_job(LEASE, job)
  z_remove(queue_key(q.name, ':active'), text(job.seq))
  job.token, job.fires = 0, 0
  count_state(q, ACTIVE, -1)
  if q.concurrency > 0 then
    q.is_ready = true
  end
  if not hold then
    ready.free_group(q, job)
  end
end

-- --- ends ------------------------------------------------------------------------------------------

-- What every end brings with it: keys, groups, edges, and callers that wait for the job.
function moves.settle_end(q, job, f, state, at)
  ready.free_group(q, job)
  keys.free(q, job, f, at)
  if state ~= COMPLETED then
    w('SETBIT', P .. 'bad:' .. text(floor(job.seq / 32768)), job.seq % 32768, 1)
  end
  if f.workflow then
    flows.note_ended(job, f, state, at)
  end
  if exists('edged') and call('SISMEMBER', P .. 'edged', text(job.id)) == 1 then
    ended_jobs[#ended_jobs + 1] = {job.id, state}
  end
  local waiting = exists('waits') and tonumber(call('HGET', P .. 'waits', text(job.id)) or 0) or 0
  if waiting > 0 then
    w('HDEL', P .. 'waits', text(job.id))
    local key = P .. 'done:' .. text(job.id)
    local head = pack({job.id, state, job.reason, extra(job, 'error') or '', extra(job, 'codec') or 'bytes',
      extra(job, 'result') and 1 or 0})
    local told = struct.pack('>I', #head) .. head .. (extra(job, 'result') or '')
    for _ = 1, waiting do
      w('RPUSH', key, told)
    end
    w('PEXPIRE', key, 60000)
  end
end

-- A completed, cancelled or expired job is no longer readable.
function moves.remove_ended(q, job)
  local f = o(job)
  local _, _, is_own = keeps(f, job.state)
  if is_own then
    z_remove(queue_key(q.name, ':own'), text(job.seq))
    z_remove(queue_key(q.name, ':owned'), text(job.seq))
    disarm_job(AGE, job)
  else
    z_remove(queue_key(q.name, ':ended'), text(job.seq))
  end
  count_state(q, job.state, -1)
  moves.forget(job, f, job.state)
end

remove_own = function(q, seq)
  moves.remove_ended(q, load(seq))
end

-- A workflow may still read what a job has returned.
function moves.forget(job, f, state)
  if f.workflow then
    flows.keep(job, state)
  end
  forget(job)
end

-- A job that has left its place ends as cancelled or expired: it is kept for a while, or forgotten.
function moves.finish(q, job, f, state, at, reason)
  job.ended, job.reason = at, reason
  moves.settle_end(q, job, f, state, at)
  disarm_ttl(job, f)
  local age, most, is_own = keeps(f, state)
  if not age then
    moves.forget(job, f, state)
    return
  end
  job.state = state
  count_state(q, state, 1)
  keep(q, {job.seq}, {text(job.seq)}, at, age, most, is_own)
  save(job)
end

-- --- dead letters ----------------------------------------------------------------------------------

function moves.remove_dead(q, job)
  w('ZREM', queue_key(q.name, ':dead'), text(job.seq))
  disarm_job(DEAD_AGE, job)
  disarm_job(DEAD_RETRY, job)
  count_state(q, FAILED, -1)
  moves.forget(job, o(job), FAILED)
end

-- The oldest dead letters leave, so that there are at most `most`.
function moves.evict(q, most, at)
  local surplus = call('ZCARD', queue_key(q.name, ':dead')) - most
  if surplus <= 0 then
    return
  end
  local ids = {}
  for _, seq in ipairs(call('ZRANGE', queue_key(q.name, ':dead'), 0, surplus - 1)) do
    local job = load(tonumber(seq))
    ids[#ids + 1] = job.id
    moves.remove_dead(q, job)
  end
  count(q, 'evicted', #ids)
  emit({24, at, H.tenant, q.name, ids, 'evicted'})
end

local function note_failure(q, job, reason, at, said)
  if reason == 'stalled' then
    job.crashes = job.crashes + 1
    count(q, 'stalled', 1)
  elseif reason == 'timeout' then
    count(q, 'timed_out', 1)
  end
  local raw = extra(job, 'history')
  local history = raw and unpack_one(raw) or {}
  history[#history + 1] = {job.attempts, job.started, at, reason, job.worker, said.error, said.error_class}
  if #history > S.attempt_history_max then
    table.remove(history, 1)
  end
  set_extra(job, 'history', pack(history))
end

local function set_errors(job, said)
  if said.error == '' and said.error_class == '' and said.stack == '' then
    drop_extra(job, 'error', 'error_class', 'stack')
  else
    set_extra(job, 'error', said.error, 'error_class', said.error_class, 'stack', said.stack)
  end
end

local NOTHING_SAID = {error = '', error_class = '', stack = ''}

-- A job will not be tried again. `delivery` is why its last delivery failed, where one ended with it.
function moves.fail_for_good(q, job, reason, at, said, delivery)
  local f = o(job)
  said = said or NOTHING_SAID
  if not f.remove_on_fail then
    moves.evict(q, dead_of(q).entries_max - 1, at)
  end
  emit({7, at, H.tenant, q.name, run_of(job), reason, said.error, said.error_class, said.stack, delivery or '',
    f.remove_on_fail and true or false})
  if delivery then
    note_failure(q, job, delivery, at, said)
  end
  if job.state == ACTIVE then
    moves.leave_active(q, job)
  else
    moves.leave(q, job)
  end
  set_errors(job, said)
  job.state, job.reason, job.ended = FAILED, reason, at
  disarm_ttl(job, f)
  count(q, 'bytes', -job.size)
  count(q, 'failed', 1)
  moves.settle_end(q, job, f, FAILED, at)
  if f.remove_on_fail then
    moves.forget(job, f, FAILED)
    return
  end
  count_state(q, FAILED, 1)
  local dead = dead_of(q)
  local entry = w('HINCRBY', queue_key(q.name), 'entries', 1)
  w('ZADD', queue_key(q.name, ':dead'), text(entry), text(job.seq))
  job.expires = at + dead.age_ms_max
  arm_job(job.expires, DEAD_AGE, job)
  job.again = 0
  if dead.auto_retry and job.retries < dead.auto_retries_max then
    job.again = at + dead.auto_retry_interval_ms
    arm_job(job.again, DEAD_RETRY, job)
  end
  save(job)
end

-- A job ends as cancelled or expired, or as a dead letter where the queue asks for it. `said` is what a worker said
-- that failed the delivery of a job which was to be cancelled.
function moves.cancel(q, job, state, reason, at, always, said)
  said = said or NOTHING_SAID
  if not always then
    if state == CANCELLED and dead_of(q).take_cancelled then
      return moves.fail_for_good(q, job, 'cancelled', at, {error = said.error, error_class = said.error_class, stack = ''})
    elseif state == EXPIRED and dead_of(q).take_expired then
      return moves.fail_for_good(q, job, 'ttl_expired', at)
    end
  end
  emit({8, at, H.tenant, q.name, state, reason, {run_of(job)}, said.error, said.error_class})
  count(q, state == CANCELLED and 'cancelled' or 'expired', 1)
  count(q, 'bytes', -job.size)
  if job.state == ACTIVE then
    moves.leave_active(q, job)
  else
    moves.leave(q, job)
  end
  moves.finish(q, job, o(job), state, at, reason)
end

-- A dead letter goes back to work.
function moves.revive(q, job, at, automatic, blocked)
  local f = o(job)
  local shown = labels(job.option)
  emit({22, at, H.tenant, q.name, job.id, automatic, blocked or false, job.at, job.size, shown or NULL})
  w('ZREM', queue_key(q.name, ':dead'), text(job.seq))
  disarm_job(DEAD_AGE, job)
  disarm_job(DEAD_RETRY, job)
  job.attempts, job.crashes, job.cancel, job.ended, job.expires, job.again, job.due = 0, 0, 0, 0, 0, 0, 0
  job.started, job.till, job.worker, job.reason, job.revived = 0, 0, '', '', 1
  if automatic then
    job.retries = job.retries + 1
  end
  w('SETBIT', P .. 'bad:' .. text(floor(job.seq / 32768)), job.seq % 32768, 0)
  keys.take(q, job, f, at, true)
  count(q, 'bytes', job.size)
  count_state(q, FAILED, -1)
  if blocked then
    block(q, job, 0)
  else
    count_state(q, WAITING, 1)
    ready.add(q, job, false)
  end
  if f.workflow then
    flows.note_revived(job, f, at)
  end
end

-- --- deliveries that end ---------------------------------------------------------------------------

local DEAD_REASONS = {failed = 'max_attempts_exceeded', timeout = 'timeout', stalled = 'stalled'}

local function last_lines(stack, most)
  if not most or stack == '' then
    return stack
  end
  local lines = {}
  for line in string.gmatch(stack .. '\n', '([^\n]*)\n') do
    lines[#lines + 1] = line
  end
  if lines[#lines] == '' then
    lines[#lines] = nil
  end
  return table.concat(lines, '\n', math.max(1, #lines - most + 1), #lines)
end

-- A delivery failed: the job is tried again, is dead (always with a `final` reason), or is cancelled if that was
-- asked for. Answers with the state that it led to, and when it is due.
function moves.fail(q, job, reason, at, said, final, delay)
  local f = o(job)
  if job.cancel == 1 then
    moves.cancel(q, job, CANCELLED, 'cancelled', at, false, said)
    return dead_of(q).take_cancelled and FAILED or CANCELLED, 0
  end
  said.stack = last_lines(said.stack, f.stack_lines_max)
  local crashes = job.crashes + (reason == 'stalled' and 1 or 0)
  local most, most_crashes = f.max_attempts or 3, f.max_crashes or 3
  local dead = final
  if not dead and reason == 'stalled' and most_crashes > 0 and crashes >= most_crashes then
    dead = 'worker_lost'
  elseif not dead and most > 0 and job.attempts >= most then
    dead = DEAD_REASONS[reason]
  end
  if dead then
    moves.fail_for_good(q, job, dead, at, said, reason)
    return FAILED, 0
  end
  delay = delay or wide.backoff(f.backoff or {}, job.attempts, job.id)
  local due = delay > 0 and at + delay or 0
  emit({6, at, H.tenant, q.name, run_of(job), reason, due, said.error, said.error_class, said.stack})
  note_failure(q, job, reason, at, said)
  set_errors(job, said)
  count(q, 'retried', 1)
  moves.leave_active(q, job, q.group == 'hold')
  moves.to_pending(q, job, due)
  return due > 0 and DELAYED or WAITING, due
end

-- A delivery is handed back: the attempt does not count.
function moves.hand_back(q, job, due, note)
  job.attempts = job.attempts - 1
  if note ~= '' then
    set_errors(job, {error = note, error_class = '', stack = ''})
  end
  moves.leave_active(q, job, due > 0 and q.group == 'hold')
  moves.to_pending(q, job, due)
  if job.attempts == 0 and job.revived == 0 then
    moves.arm_ttl(job, o(job), now)
  end
end
