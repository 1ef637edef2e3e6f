-- Goes over many jobs of a queue, at most `most` in one script: drain, clean, obliterate, retry and purge dead letters.
-- ARGV[2]: {what, queue, most, ...}. Answers whether there is more, and what it has done.

local p = unpack_one(ARGV[2])
local q = queue(p.queue)
if not q.known then
  return finish(0)
end

-- The numbers of jobs, which are loaded.
local function numbers(names)
  local seqs = numbers_of(names)
  load_all(seqs)
  return seqs
end

-- Waiting jobs, by lists and sets; each level is left when nothing stands in it any more.
local function waiting(most)
  local seen, found = {}, {}
  local function note(seqs)
    for _, seq in ipairs(numbers(seqs)) do
      local job = load(seq)
      if job and job.state == WAITING and not seen[seq] and #found < most then
        seen[seq] = true
        found[#found + 1] = seq
      end
    end
  end
  for _, level in ipairs(call('ZRANGE', queue_key(q.name, ':levels'), 0, -1)) do
    for _, kind in ipairs({':f:', ':l:'}) do
      note(call('LRANGE', queue_key(q.name, kind .. level), 0, p.scan - 1))
    end
    for _, kind in ipairs({':o:', ':m:'}) do
      note(call('ZRANGE', queue_key(q.name, kind .. level), 0, p.scan - 1))
    end
  end
  for _, group in ipairs(call('SMEMBERS', queue_key(q.name, ':groups'))) do
    note(call('ZRANGE', group_key(q, group), 0, p.scan - 1))
  end
  return found
end

local function pending(state, most)
  if state == WAITING then
    return waiting(most)
  elseif state == DELAYED then
    return numbers(call('ZRANGE', queue_key(q.name, ':delayed'), 0, most - 1))
  elseif state == BLOCKED then
    return numbers(call('ZRANGE', queue_key(q.name, ':blocked'), 0, most - 1))
  end
  return numbers(call('ZRANGE', queue_key(q.name, ':active'), 0, most - 1))
end

local function cancel_all(seqs, reason)
  table.sort(seqs)
  local ids = {}
  for _, seq in ipairs(seqs) do
    local job = load(seq)
    if job and job.state <= ACTIVE then
      ids[#ids + 1] = job.id
      moves.cancel(q, job, CANCELLED, reason, now)
    end
  end
  edges.settle(now)
  return ids
end

local sweep = {}

function sweep.drain()
  local seqs = {}
  for _, state in ipairs(p.delayed and {WAITING, DELAYED} or {WAITING}) do
    for _, seq in ipairs(pending(state, p.most)) do
      if seq <= (p.until_ or sequence) then
        seqs[#seqs + 1] = seq
      end
    end
  end
  local has_more = #seqs >= p.most
  local ids = cancel_all(seqs, 'drained')
  return finish(has_more and 1 or 0, pack({#ids, text(p.until_ or sequence)}))
end

function sweep.clean()
  local ids, before = {}, now - p.age
  if p.state == FAILED then
    for _, seq in ipairs(numbers(call('ZRANGE', queue_key(q.name, ':dead'), 0, -1))) do
      local job = load(seq)
      if #ids < p.limit and job.ended <= before then
        ids[#ids + 1] = job.id
        moves.remove_dead(q, job)
      end
    end
    if #ids > 0 then
      emit({24, now, H.tenant, q.name, ids, 'purged'})
    end
  elseif p.state > ACTIVE then
    local seqs, serials, runs = {}, {}, {}
    for _, kind in ipairs({':ended', ':owned'}) do
      local found = call('ZRANGE', queue_key(q.name, kind), 0, -1, 'WITHSCORES')
      for place = 1, #found, 2 do
        seqs[#seqs + 1], serials[tonumber(found[place])] = found[place], tonumber(found[place + 1])
      end
    end
    seqs = numbers(seqs)
    table.sort(seqs, function(a, b) return serials[a] < serials[b] end)
    for _, seq in ipairs(seqs) do
      local job = load(seq)
      if #ids < p.limit and job.state == p.state and job.ended <= before then
        ids[#ids + 1], runs[#runs + 1] = job.id, {job.id, 1}
        moves.remove_ended(q, job)
      end
    end
    if #runs > 0 then
      emit({25, now, H.tenant, q.name, runs})
    end
  else
    local seqs = pending(p.state, p.scan)
    table.sort(seqs)
    local chosen = {}
    for _, seq in ipairs(seqs) do
      if #chosen < p.limit and load(seq).at <= before then
        chosen[#chosen + 1] = seq
      end
    end
    ids = cancel_all(chosen, 'cleaned')
  end
  return finish(0, pack(ids))
end

function sweep.obliterate()
  local active = q.counts[ACTIVE + 1]
  if active > 0 and not p.force then
    return refuse('queue_active', text(active))
  end
  local done = p.done
  if not done then
    done = 0
    for state = WAITING, EXPIRED do
      done = done + q.counts[state + 1]
    end
  end
  local seqs = {}
  for _, state in ipairs({WAITING, DELAYED, BLOCKED, ACTIVE}) do
    for _, seq in ipairs(pending(state, p.most)) do
      seqs[#seqs + 1] = seq
    end
  end
  table.sort(seqs)
  for _, seq in ipairs(seqs) do
    moves.cancel(q, load(seq), CANCELLED, 'obliterated', now, true)
  end
  local budget = p.most - #seqs
  write_all()
  if budget > 0 then
    for _, kind in ipairs({':ended', ':owned'}) do
      for _, seq in ipairs(numbers(call('ZRANGE', queue_key(q.name, kind), 0, math.max(budget, 1) - 1))) do
        budget = budget - 1
        moves.remove_ended(q, load(seq))
      end
    end
    for _, seq in ipairs(numbers(call('ZRANGE', queue_key(q.name, ':dead'), 0, math.max(budget, 1) - 1))) do
      budget = budget - 1
      moves.remove_dead(q, load(seq))
    end
  end
  write_all()
  local left = 0
  for _, kind in ipairs({':ended', ':owned', ':dead', ':delayed', ':blocked', ':active'}) do
    left = left + call('ZCARD', queue_key(q.name, kind))
  end
  if left > 0 or #seqs >= p.most then
    edges.settle(now)
    return finish(1, pack({done}))
  end
  emit({21, now, H.tenant, q.name})
  edges.settle(now)
  for _, field in ipairs(call('HKEYS', queue_key(q.name, ':keys'))) do
    disarm(KEY, string.sub(field, 1, 1) .. #q.name .. ':' .. q.name .. ':' .. string.sub(field, 3))
  end
  for _, name in ipairs(call('HKEYS', queue_key(q.name, ':schedules'))) do
    disarm(SCHEDULE, #q.name .. ':' .. q.name .. ':' .. name)
    w('HINCRBY', KEYS[1], 'schedules', -1)
  end
  for _, level in ipairs(call('ZRANGE', queue_key(q.name, ':levels'), 0, -1)) do
    for _, kind in ipairs({':f:', ':l:', ':o:', ':m:'}) do
      w('DEL', queue_key(q.name, kind .. level))
    end
  end
  for _, group in ipairs(call('SMEMBERS', queue_key(q.name, ':groups'))) do
    w('DEL', group_key(q, group))
  end
  flows.let_go_of_queue(q.name)
  disarm(AGE, 'q' .. q.name)
  write_all()
  q.gone = true
  for _, kind in ipairs({'', ':keys', ':levels', ':h', ':offered', ':groups', ':minute', ':schedules', ':own'}) do
    w('DEL', queue_key(q.name, kind))
  end
  w('SREM', P .. 'queues', q.name)
  return finish(0, pack({done}))
end

local function chosen_dead()
  local seqs = {}
  if p.ids then
    local seen = {}
    for _, id in ipairs(p.ids) do
      local seq = floor(id / 64)
      if id % 64 == 0 and not seen[seq] and call('ZSCORE', queue_key(q.name, ':dead'), text(seq)) then
        seen[seq] = true
        seqs[#seqs + 1] = seq
      end
    end
    load_all(seqs)
  else
    seqs = numbers(call('ZRANGE', queue_key(q.name, ':dead'), p.skip or 0, (p.skip or 0) + p.most - 1))
  end
  local found = {}
  for _, seq in ipairs(seqs) do
    if not p.reason or load(seq).reason == p.reason then
      found[#found + 1] = seq
    end
  end
  return found, not p.ids and #seqs == p.most
end

function sweep.retry()
  local seqs, has_more = chosen_dead()
  local known, refused, revived, looked = {}, {}, {}, 0
  for _, seq in ipairs(seqs) do
    known[seq * 64] = true
  end
  for _, id in ipairs(p.ids or {}) do
    if id % 64 ~= 0 or not call('ZSCORE', queue_key(q.name, ':dead'), text(floor(id / 64))) then
      refused[#refused + 1] = {id, 'not_found'}
    end
  end
  for _, seq in ipairs(seqs) do
    if p.limit and looked >= p.limit then
      has_more = false
      break
    end
    looked = looked + 1
    local job = load(seq)
    if keys.taken(q, job, o(job)) then
      refused[#refused + 1] = {job.id, 'wrong_state'}
    else
      moves.revive(q, job, now, false)
      edges.settle(now)
      revived[#revived + 1] = job.id
    end
  end
  return finish(has_more and 1 or 0, pack({revived, refused, looked}))
end

function sweep.purge()
  local seqs, has_more = chosen_dead()
  local ids = {}
  for _, seq in ipairs(seqs) do
    local job = load(seq)
    ids[#ids + 1] = job.id
    moves.remove_dead(q, job)
  end
  if #ids > 0 then
    emit({24, now, H.tenant, q.name, ids, 'purged'})
  end
  return finish(has_more and 1 or 0, pack({#ids}))
end

return sweep[p.what]()
