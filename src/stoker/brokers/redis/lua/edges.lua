-- Dependencies. A blocked job keeps its unfinished edges (`b` of its extras, in order); `e:ID` leads from a job to
-- those that wait for it.
-- exports: edges

edges = {}
local GOOD, BAD, OPEN = 1, 2, 3
local SLICE = 1000

function edges.is_skipped(seq)
  local found = call('ZRANGEBYSCORE', P .. 'skipped', text(seq), '+inf', 'LIMIT', 0, 1)[1]
  return found and tonumber(string.match(found, '^%d+')) <= seq or false
end

function edges.is_known(id)
  local seq = id / 64
  return id % 64 == 0 and seq > 0 and seq <= sequence and not edges.is_skipped(seq)
end

function edges.standing(id)
  local seq = floor(id / 64)
  if seq > sequence then
    return OPEN -- a later item of the batch that is being pushed
  end
  if call('GETBIT', P .. 'bad:' .. text(floor(seq / 32768)), seq % 32768) == 1 then
    return BAD
  end
  local job = load(seq)
  return job and job.state <= ACTIVE and OPEN or GOOD
end

function edges.is_bad(id)
  return edges.standing(id) == BAD
end

-- The edges that keep a new job blocked, failed ones included: those are settled right after the push.
function edges.open(depends_on)
  local found, places = {}, {}
  for _, edge in ipairs(depends_on) do
    local policy = edge.on_failure or 'fail'
    local stands = edges.standing(edge.id)
    if stands == OPEN or (stands == BAD and policy ~= 'continue') then
      local known = places[edge.id]
      if not known then
        found[#found + 1] = {edge.id, policy}
        places[edge.id] = found[#found]
      elseif known[2] == 'continue' then
        known[2] = policy
      end
    end
  end
  return found
end

-- A new job waits for others. Failed ones are settled right after the push.
function edges.register(q, job, found)
  set_extra(job, 'b', pack(found))
  for _, edge in ipairs(found) do
    w('ZADD', P .. 'e:' .. text(edge[1]), text(job.id), text(job.id))
    w('SADD', P .. 'edged', text(edge[1]))
  end
  looked_up.edged = true
end

-- The policy of the first edge whose job has failed already, or nil.
function edges.first_failed(found)
  for _, edge in ipairs(found) do
    if edge[2] ~= 'continue' and edges.standing(edge[1]) == BAD then
      return edge[2]
    end
  end
end

-- A job that waits for one that failed ends by the policy of its edge.
function edges.end_dependent(q, job, policy, at)
  if policy == 'cancel' then
    moves.cancel(q, job, CANCELLED, 'dependency_failed', at)
  else
    moves.fail_for_good(q, job, 'dependency_failed', at,
      {error = 'a dependency failed', error_class = '', stack = ''})
  end
end

local function unblock(q, job, ended_id, at)
  local left = {}
  for _, edge in ipairs(unpack_one(extra(job, 'b'))) do
    if edge[1] ~= ended_id then
      left[#left + 1] = edge
    end
  end
  local is_ready = #left == 0
  local due = is_ready and job.due > at and job.due or 0
  emit({15, at, H.tenant, q.name, job.id, ended_id, is_ready, due})
  moves.drop_edge(ended_id, job)
  if not is_ready then
    set_extra(job, 'b', pack(left))
    return
  end
  drop_extra(job, 'b')
  count_state(q, BLOCKED, -1)
  w('ZREM', queue_key(q.name, ':blocked'), text(job.seq))
  moves.to_pending(q, job, due)
end

function edges.settle_one(ended_id, state, at)
  local key = P .. 'e:' .. text(ended_id)
  for _, waiting in ipairs(call('ZRANGE', key, 0, SLICE - 1)) do
    local job = by_id(tonumber(waiting))
    local policy
    if job and job.state == BLOCKED then
      for _, edge in ipairs(unpack_one(extra(job, 'b') or pack({}))) do
        if edge[1] == ended_id then
          policy = edge[2]
        end
      end
    end
    if not policy then
      w('ZREM', key, waiting)  -- it has ended meanwhile
    elseif state == COMPLETED or policy == 'continue' then
      unblock(queue_of(job), job, ended_id, at)
    else
      edges.end_dependent(queue_of(job), job, policy, at)
    end
  end
  if call('EXISTS', key) == 0 then
    w('SREM', P .. 'edged', text(ended_id))
  else
    arm(math.max(at, now) + 1, EDGES, wide_text(ended_id) .. ':' .. state)
  end
end

-- Decide about every job that waited for one that has ended, until nothing more follows.
function edges.settle(at)
  repeat
    while #ended_jobs > 0 do
      local ended = table.remove(ended_jobs, 1)
      edges.settle_one(ended[1], ended[2], at)
    end
    flows.settle(at)
  until #ended_jobs == 0
end
