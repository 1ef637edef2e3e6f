-- Settles deliveries, or renews their leases.
-- ARGV[2]: {what, ids, tokens, ...}; of an ack with results they follow, one for each id, after a mask of those there.
-- Answers what became of each: refusals as {id, code, ...}, and more by what was asked for.

local p = unpack_one(ARGV[2])
local seqs, names = {}, {}
for place, id in ipairs(p.ids) do
  seqs[place] = floor(id / 64)
  names[place] = text(seqs[place])
end
local rows = read_rows('j:', seqs, names)

-- The places of the deliveries that are the caller's, by queue in the order named.
local refused, by_queue, order, held, kinds, seen = {}, {}, {}, {}, {}, {}
for place, id in ipairs(p.ids) do
  local wanted = p.tokens and p.tokens[place] or p.token
  local kind = rows[place] and id % 64 == 0 and kind_of(rows[place])
  local job = kind and kind.job
  local code
  if not job then
    code = 'not_found'
  elseif seen[id] or job.state ~= ACTIVE then
    code = wanted and 'lost_lease' or 'wrong_state'
  elseif wanted and wanted ~= job.token then
    code = 'lost_lease'
  end
  if code then
    refused[#refused + 1] = {id, code}
  else
    seen[id], held[#held + 1], kinds[place] = true, place, kind
    local places = by_queue[kind.queue]
    if not places then
      places = {}
      by_queue[kind.queue] = places
      order[#order + 1] = kind.queue
    end
    places[#places + 1] = place
  end
end

-- Whether the end of a job concerns nothing but the job: no group, key or workflow, no other job and no caller that
-- waits for it, and no retention of its own that has run out.
local has_followers = {}
local function ends_alone()
  local waits, edged = call('EXISTS', P .. 'waits') == 1, call('EXISTS', P .. 'edged') == 1
  local is_alone = true
  for _, name in ipairs(order) do
    local q = queue(name)
    is_alone = is_alone and not q.rate
      and not call('ZRANGEBYSCORE', queue_key(name, ':own'), '-inf', text(q.serial + #by_queue[name]), 'LIMIT', 0, 1)[1]
  end
  for _, place in ipairs(held) do
    local f = kinds[place].f
    if f.group_id or f.unique_key or f.custom_id or f.workflow
      or waits and call('HEXISTS', P .. 'waits', text(p.ids[place])) == 1
      or edged and call('SISMEMBER', P .. 'edged', text(p.ids[place])) == 1 then
      has_followers[place] = true
      is_alone = false
    end
  end
  return is_alone
end
local is_plain = p.what == 'ack' and ends_alone()
-- parts

local CODECS = {bytes = 0, json = 1, msgpack = 2}

-- How the jobs of a kind are stored once they have completed, with and without something beside them.
local function completed(kind, extra)
  kind.completed = kind.completed or {}
  local row = kind.completed[extra]
  if not row then
    row = changed_row(kind.job, {state = COMPLETED, token = 0, fires = 0, ended = now, reason = '', extra = extra})
    kind.completed[extra] = row
  end
  return row
end

-- The jobs leave their workers. Answers with their rows, with what stands beside each.
local function leave_active(q, places, sizes)
  local stored, members, left, wait_ms, run_ms, bytes = {}, {}, {}, 0, 0, 0
  for at, place in ipairs(places) do
    local kind = kinds[place]
    local job, id = kind.job, p.ids[place]
    local extra = job.extra
    members[at], left[at] = format('%s%016.0f', LEASE, id), names[place]
    wait_ms, run_ms, bytes = wait_ms + job.started - job.at, run_ms + now - job.started, bytes + job.size
    if extra == 1 then
      w('HDEL', P .. 'x:' .. text(id), 'error', 'error_class', 'stack')
    end
    if sizes and sizes[at] >= 0 then
      w('HSET', P .. 'x:' .. text(id), 'result', ARGV[2 + place], 'codec', p.codec)
      extra = 1
    end
    stored[at] = extra
  end
  w_many('ZREM', P .. 'deadlines', members)
  w_many('ZREM', queue_key(q.name, ':active'), left)
  head = nil
  count(q, 'completed', #places)
  count(q, 'wait_ms', wait_ms)
  count(q, 'run_ms', run_ms)
  count(q, 'bytes', -bytes)
  count_state(q, ACTIVE, -#places)
  if q.concurrency > 0 then
    q.is_ready = true
  end
  return stored
end

-- The jobs are kept for a while, neighbours with the same options together, or forgotten.
local function keep_or_forget(q, places, extras)
  local kept, kept_rows, run = {}, {}, nil
  for at, place in ipairs(places) do
    local kind = kinds[place]
    local number = kind.job.option
    if not run or run.option ~= number then
      run = {option = number, seqs = {}, names = {}}
      run.age, run.most, run.is_own = keeps(kind.f, COMPLETED)
      kept[#kept + 1] = run
    end
    if run.age then
      run.seqs[#run.seqs + 1], run.names[#run.names + 1] = seqs[place], names[place]
      kept_rows[#kept_rows + 1] = names[place]
      kept_rows[#kept_rows + 1] = completed(kind, extras[at])
    elseif has_followers[place] then
      moves.forget(load(seqs[place]), kind.f, COMPLETED)
    else
      forget_row(seqs[place], names[place], {extra = extras[at], option = number})
    end
  end
  local all_seqs = {}
  for _, one in ipairs(kept) do
    if #one.seqs > 0 then
      keep(q, one.seqs, one.names, now, one.age, one.most, one.is_own)
    end
    for _, seq in ipairs(one.seqs) do all_seqs[#all_seqs + 1] = seq end
  end
  by_bucket('j:', all_seqs, function(key, from, till)
    w('HSET', key, unpack(kept_rows, 2 * from - 1, 2 * till))
  end)
  count_state(q, COMPLETED, #all_seqs)
end

-- Completed jobs by second, for the last minute.
local function count_minute(key, total)
  local second = floor(now / 1000)
  if w('HINCRBY', key, text(second), total) == total then
    for _, old in ipairs(call('HKEYS', key)) do
      if tonumber(old) <= second - 60 then
        w('HDEL', key, old)
      end
    end
  end
end

local function ack()
  for _, name in ipairs(order) do
    local q, places, told, sizes = queue(name), by_queue[name], {}, nil
    see(q, now)
    for _, place in ipairs(places) do
      tell(told, p.ids[place], kinds[place].run)
    end
    if p.results then
      sizes = {}
      for at, place in ipairs(places) do
        sizes[at] = string.sub(p.results, place, place) == '1' and #ARGV[2 + place] or -1
      end
    end
    emit_raw(pack({5, now, H.tenant, name, told, NULL, sizes and CODECS[p.codec] or 0}), sizes and 's', sizes and pack(sizes))
    local extras = leave_active(q, places, sizes)
    for at, place in ipairs(places) do
      if has_followers[place] then
        local job = load(seqs[place])
        job.extra, job.ended, job.reason = extras[at], now, ''
        moves.settle_end(q, job, o(job), COMPLETED, now)
      end
    end
    keep_or_forget(q, places, extras)
    count_minute(queue_key(name, ':minute'), #places)
    count_minute(P .. 'minute', #places)
  end
  if is_plain then
    push_out()
  else
    edges.settle(now)
  end
  return #held
end

if p.what == 'ack' then
  return finish(pack({ack(), refused}))
end

-- --- everything but an ack: job by job --------------------------------------------------------------

load_all(seqs)

local function jobs_at(places)
  local found = {}
  for at, place in ipairs(places) do
    found[at] = load(seqs[place])
  end
  return found
end

local function fail()
  local outcomes = {}
  for at, job in ipairs(jobs_at(held)) do
    local id = job.id
    see(queue_of(job), now)
    local state, due = moves.fail(queue_of(job), job, 'failed', now,
      {error = p.error, error_class = p.error_class, stack = p.stack}, p.final, p.delay)
    edges.settle(now)
    outcomes[at] = {id, state, due}
  end
  return outcomes
end

local function release()
  local due = p.delay > 0 and now + p.delay or 0
  for _, name in ipairs(order) do
    local q, told, ending = queue(name), {}, {}
    local found = jobs_at(by_queue[name])
    for _, job in ipairs(found) do
      if job.cancel == 0 then
        told[#told + 1] = run_of(job)
      else
        ending[#ending + 1] = job
      end
    end
    if #told > 0 then
      emit({9, now, H.tenant, name, told, due, p.note})
    end
    for _, job in ipairs(found) do
      if job.cancel == 0 then
        moves.hand_back(q, job, due, p.note)
      end
    end
    for _, job in ipairs(ending) do
      if job.state == ACTIVE then
        moves.cancel(q, job, CANCELLED, 'cancelled', now)
        edges.settle(now)
      end
    end
  end
  return #held
end

local function extend()
  local till, cancelled = 0, {}
  for _, job in ipairs(jobs_at(held)) do
    if job.cancel == 1 then
      cancelled[#cancelled + 1] = job.id
    end
    till = math.max(till, p.renew and now + (p.lease or job.lease) or job.till)
  end
  for _, name in ipairs(p.renew and order or {}) do
    local pairs_of = {}
    for _, job in ipairs(jobs_at(by_queue[name])) do
      local last = pairs_of[#pairs_of]
      if last and last[1] + last[2] * 64 == job.id then
        last[2] = last[2] + 1
      else
        pairs_of[#pairs_of + 1] = {job.id, 1}
      end
      moves.extend(job, o(job), p.lease or job.lease)
    end
    emit({10, now, H.tenant, name, pairs_of, p.lease or NULL})
  end
  return {#held, till, cancelled}
end

local answers = {fail = fail, release = release, extend = extend}
local answer = answers[p.what]()
return finish(pack({answer, refused}))
