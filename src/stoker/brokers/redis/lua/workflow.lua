-- Pushes, fills, shows, cancels and retries workflows. ARGV[2]: {what, ...}.
-- A push brings its steps as {key, queue, after, count, parent, is_open, own}; the options of each follow, then all payloads.

local p = unpack_one(ARGV[2])
local workflow = {}

-- Pushes the jobs of a step: blocked, unless the step has been let go.
local function push_jobs(flow, step, from, total)
  local q, f = queue(step.queue), unpack_one(step.raw)
  local due = due_of(f, now)
  make_known(q)
  local made = make_jobs(q, step.raw, step.own, from, total, now, due)
  step.first, step.count = made.seqs[1] * 64, total
  for _, job in ipairs(made_jobs(made)) do
    job.step = step.number + 1
    moves.arm_ttl(job, f, 0)
    if step.released then
      place_new(q, job, f, due)
    else
      block(q, job, 0)
    end
  end
  if not step.released then
    step.due = due
  end
  flows.save_step(flow, step)
end

function workflow.push()
  local q = queue(p.steps[1][2])
  if p.request then
    local held = keys.get(q, 'r', 'workflow:' .. p.request)
    if held then
      local flow, steps = flows.find(held[1]), {}
      for number = 0, flow and flow.steps_count - 1 or -1 do
        local step = flows.step(flow, number)
        steps[number + 1] = {step.first, step.count}
      end
      return finish(pack({held[1], steps, 0}))
    end
  end
  local new, names = 0, {}
  for _, step in ipairs(p.steps) do
    if not names[step[2]] and not queue(step[2]).known then
      names[step[2]], new = true, new + 1
    end
  end
  if new > 0 and call('SCARD', P .. 'queues') + new > S.queues_per_tenant_max then
    return refuse('limit_exceeded', 'queues')
  end
  local running = call('ZCARD', P .. 'flows') - call('ZCARD', P .. 'ended_flows')
  if running >= p.most then
    return refuse('limit_exceeded', text(running))
  end
  sequence = sequence + 1
  local id, firsts, given = sequence * 64, {}, sequence
  for place, step in ipairs(p.steps) do
    firsts[place] = not step[6] and (given + 1) * 64 or 0
    given = given + step[4]
  end
  local flow = {id = id, name = p.name, at = now, cancelled = false, round = 0, finished = 0, forget_at = 0,
    open = #p.steps, steps_count = #p.steps, sinks = 0, good_sinks = 0, size = 0, steps = {}}
  known_flows[id] = flow
  local before = {}
  for place = 1, #p.steps do before[place] = {} end
  for place, step in ipairs(p.steps) do
    for _, edge in ipairs(step[3]) do
      table.insert(before[edge[1] + 1], {place - 1, edge[2]})
    end
  end
  w('ZADD', P .. 'flows', text(id), text(id))
  for place, step in ipairs(p.steps) do
    local f = unpack_one(ARGV[2 + place])
    f.workflow = id
    if step[5] then
      f.parent_id = firsts[step[5] + 1] > 0 and firsts[step[5] + 1] or nil
    end
    local made = {number = place - 1, key = step[1], queue = step[2], after = step[3], before = before[place],
      raw = pack(f), own = step[7] == 1, is_open = step[6], first = 0, count = 0, waits = #step[3],
      released = #step[3] == 0, due = 0, ended = {0, 0, 0, 0}, skipped = false, standing = STEP_OPEN, failing = false}
    flow.steps[place - 1] = made
    flow.sinks = flow.sinks + (#before[place] == 0 and 1 or 0)
    w('HSET', flow_key(id), 'm:' .. (place - 1), pack({made.key, made.queue, made.after, made.before, made.raw,
      made.own and 1 or 0, made.is_open and 1 or 0}))
    if #before[place] > 0 then
      w('HSET', flow_key(id), 'r:' .. (place - 1), #before[place])
    end
    flows.save_step(flow, made)
  end
  flows.save(flow)
  local from, steps = 3 + #p.steps, {}
  for place, step in ipairs(p.steps) do
    if step[4] > 0 then
      push_jobs(flow, flow.steps[place - 1], from, step[4])
      from = from + step[4]
    end
    steps[place] = {flow.steps[place - 1].first, step[4]}
  end
  if p.request then
    keys.put(q, 'r', 'workflow:' .. p.request, id, now + S.request_ttl_ms)
  end
  return finish(pack({id, steps, 1}))
end

function workflow.fill()
  local job = by_id(p.id)
  if not job then
    return refuse('not_found', 'held')
  elseif job.state ~= ACTIVE or (p.token and p.token ~= job.token) then
    return refuse(p.token and 'lost_lease' or 'wrong_state', 'held')
  end
  local f = o(job)
  local flow = job.step > 0 and flows.find(f.workflow)
  if not flow then
    return refuse('wrong_state', 'none')
  end
  local own, chosen = flows.step(flow, job.step - 1), nil
  local own_key = own.key ~= '' and own.key or tostring(own.number)
  for _, edge in ipairs(own.before) do
    local step = flows.step(flow, edge[1])
    local key = step.key ~= '' and step.key or tostring(step.number)
    if step.is_open and key == p.step then
      chosen = chosen or step
    end
  end
  if not chosen then
    return refuse('not_found', pack({flow.id, own_key}))
  end
  local jobs = #ARGV - 2
  if not (chosen.count > 0 or chosen.released or chosen.skipped or flow.cancelled or jobs == 0) then
    push_jobs(flow, chosen, 3, jobs)
  end
  return finish(chosen.count)
end

local function shown(flow)
  local steps = {}
  for number = 0, flow.steps_count - 1 do
    local step = flows.step(flow, number)
    local counts = {0, 0, 0, 0, step.ended[1], step.ended[2], step.ended[3], step.ended[4]}
    for _, job in ipairs(flows.jobs(step, {[WAITING] = true, [DELAYED] = true, [BLOCKED] = true, [ACTIVE] = true})) do
      counts[job.state + 1] = counts[job.state + 1] + 1
    end
    steps[number + 1] = {step.key, step.queue, unpack_one(step.raw).name or NULL, step.after, step.is_open, step.first,
      step.count, counts, step.standing, step.failing, step.released}
  end
  return pack({flow.id, flow.name, flows.state(flow), flow.at, flow.finished, flow.round, steps})
end

function workflow.get()
  local flow = flows.find(p.id)
  if not flow then
    return refuse('not_found', '')
  end
  return finish(shown(flow))
end

function workflow.list()
  local found = {}
  for _, id in ipairs(call('ZREVRANGEBYSCORE', P .. 'flows', p.after and '(' .. text(p.after) or '+inf', '-inf')) do
    local flow = flows.find(tonumber(id))
    local state = flows.state(flow)
    if (not p.state or p.state == state) and (not p.name or p.name == flow.name) then
      if #found == p.limit then
        return finish(1, pack(found))
      end
      local failing = 0
      for number = 0, flow.steps_count - 1 do
        failing = failing + (flows.step(flow, number).failing and 1 or 0)
      end
      found[#found + 1] = {flow.id, flow.name, state, flow.at, flow.finished, flow.steps_count,
        flow.steps_count - flow.open, failing}
    end
  end
  return finish(0, pack(found))
end

function workflow.cancel()
  local flow = flows.find(p.id)
  if not flow then
    return refuse('not_found', '')
  end
  if flow.cancelled then
    return finish(shown(flow))
  elseif flow.finished > 0 then
    return refuse('wrong_state', flows.state(flow))
  end
  flow.cancelled = true
  for number = 0, flow.steps_count - 1 do
    local step = flows.step(flow, number)
    if step.standing == STEP_BAD then
      flows.stop_reading(flow, step)
    end
  end
  flows.save(flow)
  for number = 0, flow.steps_count - 1 do
    local step = flows.step(flow, number)
    local q = queue(step.queue)
    if step.count == 0 then
      step.skipped = true
      flows.reckon(flow, step, now)
    else
      for _, job in ipairs(flows.jobs(step, {[WAITING] = true, [DELAYED] = true, [BLOCKED] = true})) do
        moves.cancel(q, job, CANCELLED, 'cancelled', now)
      end
      for _, job in ipairs(flows.jobs(step, {[ACTIVE] = true})) do
        if job.cancel == 0 then
          job.cancel = 1
          save(job)
          emit({11, now, H.tenant, step.queue, job.id})
        end
      end
    end
  end
  edges.settle(now)
  return finish(shown(flow))
end

function workflow.retry()
  local flow = flows.find(p.id)
  if not flow then
    return refuse('not_found', '')
  elseif flow.cancelled then
    return refuse('wrong_state', 'cancelled')
  end
  local is_failing = false
  for number = 0, flow.steps_count - 1 do
    is_failing = is_failing or flows.step(flow, number).failing
  end
  if not is_failing then
    return refuse('wrong_state', flows.state(flow) .. ':')
  end
  flow.round = flow.round + 1
  for number = 0, flow.steps_count - 1 do
    local step = flows.step(flow, number)
    if step.skipped then
      step.skipped = false
      flows.reckon(flow, step, now)
    end
  end
  flows.save(flow)
  for number = 0, flow.steps_count - 1 do
    local step = flows.step(flow, number)
    for place = 0, step.ended[2] > 0 and step.count - 1 or -1 do
      local job = load(step.first / 64 + place)
      if job and job.state == FAILED then
        moves.revive(queue(step.queue), job, now, false, not step.released)
      end
    end
  end
  for number = 0, flow.steps_count - 1 do
    flows.judge(flow, flows.step(flow, number), now)
  end
  edges.settle(now)
  return finish(shown(flow))
end

-- What the jobs have given that a job depends on: {step, id, state, codec, error}, with the result beside it.
function workflow.inputs()
  local job = by_id(p.id)
  if not job then
    return refuse('not_found', 'job')
  end
  local f, segments = o(job), {}
  local flow = job.step > 0 and flows.find(f.workflow)
  if flow then
    for _, edge in ipairs(flows.step(flow, job.step - 1).after) do
      local other = flows.step(flow, edge[1])
      if other.first > 0 then
        segments[#segments + 1] = {other.key ~= '' and other.key or tostring(other.number), other.first, other.count,
          other.number}
      end
    end
  end
  for _, edge in ipairs(f.depends_on or {}) do
    segments[#segments + 1] = {'', edge.id, 1, -1}
  end
  local total, skip, room, bytes, found = 0, p.after, p.limit, p.bytes, {}
  for _, segment in ipairs(segments) do
    total = total + segment[3]
    local take = skip < segment[3] and math.min(segment[3] - skip, room) or 0
    for place = 0, take - 1 do
      local id = segment[2] + (skip + place) * 64
      local input, result = by_id(id), false
      local told = {segment[1], id, NULL, 'bytes', ''}
      if input then
        result = extra(input, 'result')
        local error = extra(input, 'error') or ''
        told = {segment[1], id, input.state, result and extra(input, 'codec') or 'bytes',
          error ~= '' and error or input.reason}
      elseif segment[4] >= 0 and call('HEXISTS', flow_key(flow.id), 'r:' .. segment[4]) == 1 then
        local raw = call('HGET', flow_key(flow.id), 'k:' .. text(id))
        if raw then
          local length = struct.unpack('>I', raw)
          local kept = unpack_one(string.sub(raw, 5, 4 + length))
          result = kept[4] == 1 and string.sub(raw, 5 + length, #raw - 200) or false
          told = {segment[1], id, kept[1], result and kept[2] or 'bytes', kept[3]}
        elseif edges.standing(id) ~= 2 then
          told = {segment[1], id, COMPLETED, 'bytes', ''}
        end
      end
      bytes = bytes - #(result or '')
      if bytes < 0 and #found > 0 then
        room = 0
        break
      end
      found[#found + 1] = {pack(told), result and 1 or 0, result or ''}
    end
    room = room == 0 and 0 or room - take
    skip = math.max(0, skip - segment[3])
  end
  return finish(total, found)
end

return workflow[p.what]()
