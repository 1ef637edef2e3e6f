-- Workflows. `w:ID` holds one: `flow` how it stands as a whole, `m:N` a step as it was pushed, `s:N` how it stands now,
-- `r:N` how many steps may still read what it returned, `k:JOB` what a forgotten job returned. A job names its step.
-- exports: flows, flow_key, known_flows, STEP_OPEN, STEP_BAD

local STEP_GOOD = 1
STEP_OPEN, STEP_BAD = 0, 2
local CONTINUE = 2
local POLICY_NAMES = {[0] = 'fail', 'cancel', 'continue'}
local GIVEN_UP_AT_ONCE = 200
local ENTRY_BYTES = 200

flows = {}
known_flows = {}
local moved = {}

function flow_key(id)
  return P .. 'w:' .. text(id)
end

function flows.find(id)
  local flow = known_flows[id]
  if flow == nil then
    local raw = call('HGET', flow_key(id), 'flow')
    flow = false
    if raw then
      local a = unpack_one(raw)
      flow = {id = id, name = a[1], at = a[2], cancelled = a[3] == 1, round = a[4], finished = a[5], forget_at = a[6],
        open = a[7], steps_count = a[8], sinks = a[9], good_sinks = a[10], size = a[11], steps = {}}
    end
    known_flows[id] = flow
  end
  return flow
end

function flows.save(flow)
  w('HSET', flow_key(flow.id), 'flow', pack({flow.name, flow.at, flow.cancelled and 1 or 0, flow.round, flow.finished,
    flow.forget_at, flow.open, flow.steps_count, flow.sinks, flow.good_sinks, flow.size}))
end

function flows.step(flow, number)
  local step = flow.steps[number]
  if not step then
    local raw = call('HMGET', flow_key(flow.id), 'm:' .. number, 's:' .. number)
    local made, a = unpack_one(raw[1]), unpack_one(raw[2])
    step = {number = number, key = made[1], queue = made[2], after = made[3], before = made[4], raw = made[5],
      own = made[6] == 1, is_open = made[7] == 1, first = a[1], count = a[2], waits = a[3], released = a[4] == 1,
      due = a[5], ended = a[6], skipped = a[7] == 1, standing = a[8], failing = a[9] == 1}
    flow.steps[number] = step
  end
  return step
end

function flows.save_step(flow, step)
  w('HSET', flow_key(flow.id), 's:' .. step.number, pack({step.first, step.count, step.waits, step.released and 1 or 0,
    step.due, step.ended, step.skipped and 1 or 0, step.standing, step.failing and 1 or 0}))
end

local function of_job(job, f)
  local flow = job.step > 0 and flows.find(f.workflow)
  if flow then
    return flow, flows.step(flow, job.step - 1)
  end
end

local function left(step)
  return step.count - step.ended[1] - step.ended[2] - step.ended[3] - step.ended[4]
end

function flows.state(flow)
  if flow.cancelled then
    return 'cancelled'
  elseif flow.open > 0 then
    return 'running'
  end
  return flow.good_sinks == flow.sinks and 'completed' or 'failed'
end

local function lets_start(standing, policy)
  return (standing == STEP_GOOD or (standing == STEP_BAD and policy == CONTINUE)) and 1 or 0
end

-- --- what forgotten jobs returned ------------------------------------------------------------------

local function kept_less(flow, size)
  if size > 0 then
    flow.size = flow.size - size
    w('HINCRBY', KEYS[1], 'kept', text(-size))
    if flow.size == 0 then
      w('ZREM', P .. 'keeping', text(flow.id))
    end
  end
end

-- From now on what the jobs of a step returned is gone with them.
function flows.let_go(flow, number)
  w('HDEL', flow_key(flow.id), 'r:' .. number)
  local step, size = flows.step(flow, number), 0
  for place = 0, flow.size > 0 and step.count - 1 or -1 do
    local field = 'k:' .. text(step.first + place * 64)
    local raw = call('HGET', flow_key(flow.id), field)
    if raw then
      size = size + #raw
      w('HDEL', flow_key(flow.id), field)
    end
  end
  kept_less(flow, size)
end

function flows.let_go_all(flow)
  for number = 0, flow.steps_count - 1 do
    if call('HEXISTS', flow_key(flow.id), 'r:' .. number) == 1 then
      flows.let_go(flow, number)
    end
  end
  flows.save(flow)
end

local function read(flow, step, over)
  for _, edge in ipairs(step.after) do
    local readers = tonumber(call('HGET', flow_key(flow.id), 'r:' .. edge[1]) or nil)
    if readers then
      if readers <= over then
        flows.let_go(flow, edge[1])
      else
        w('HSET', flow_key(flow.id), 'r:' .. edge[1], readers - over)
      end
    end
  end
end

local function reads_no_more(flow, standing)
  return (standing == STEP_GOOD or (standing == STEP_BAD and flow.cancelled)) and 1 or 0
end

-- The workflow is cancelled: a step that has failed will not be retried.
function flows.stop_reading(flow, step)
  read(flow, step, 1)
end

-- A job of a workflow is being forgotten.
function flows.keep(job, state)
  local flow, step = of_job(job, o(job))
  if not flow or call('HEXISTS', flow_key(flow.id), 'r:' .. step.number) == 0 then
    return
  end
  local result = extra(job, 'result')
  if state == COMPLETED and not result then
    return
  end
  local error = extra(job, 'error') or ''
  local head = pack({state, extra(job, 'codec') or 'bytes', error ~= '' and error or job.reason, result and 1 or 0})
  local entry = struct.pack('>I', #head) .. head .. (result or '') .. string.rep('\0', ENTRY_BYTES)
  w('HSET', flow_key(flow.id), 'k:' .. text(job.id), entry)
  flow.size = flow.size + #entry
  flows.save(flow)
  local kept = w('HINCRBY', KEYS[1], 'kept', #entry)
  if not call('ZSCORE', P .. 'keeping', text(flow.id)) then
    w('ZADD', P .. 'keeping', w('HINCRBY', KEYS[1], 'keepers', 1), text(flow.id))
  end
  while kept > S.workflow_results_bytes_max do
    local oldest = call('ZRANGE', P .. 'keeping', 0, 99)
    local chosen = flows.find(tonumber(oldest[1]))
    for _, id in ipairs(oldest) do
      local other = flows.find(tonumber(id))
      if other.open == 0 then
        chosen = other
        break
      end
    end
    flows.let_go_all(chosen)
    kept = tonumber(call('HGET', KEYS[1], 'kept'))
  end
end

-- A queue is obliterated: nothing of its jobs is kept.
function flows.let_go_of_queue(name)
  for _, id in ipairs(call('ZRANGE', P .. 'keeping', 0, -1)) do
    local flow = flows.find(tonumber(id))
    for number = 0, flow.steps_count - 1 do
      if flows.step(flow, number).queue == name then
        flows.let_go(flow, number)
      end
    end
    flows.save(flow)
  end
end

-- --- how steps stand -------------------------------------------------------------------------------

local function finish_flow(flow, at)
  local age = flows.state(flow) == 'failed' and S.dead.age_ms_max or S.retention.completed_age_ms
  flow.finished, flow.forget_at = at, at + age
  w('ZADD', P .. 'ended_flows', w('HINCRBY', KEYS[1], 'flows_ended', 1), text(flow.id))
  arm(flow.forget_at, FLOW, wide_text(flow.id) .. ':-1')
end

local function note(flow, step, standing, failing, at)
  local before = step.standing
  step.standing, step.failing = standing, failing
  for _, edge in ipairs(step.before) do
    local other = flows.step(flow, edge[1])
    other.waits = other.waits + lets_start(before, edge[2]) - lets_start(standing, edge[2])
    flows.save_step(flow, other)
  end
  flow.open = flow.open + (standing == STEP_OPEN and 1 or 0) - (before == STEP_OPEN and 1 or 0)
  if #step.before == 0 then
    flow.good_sinks = flow.good_sinks + (standing == STEP_GOOD and 1 or 0) - (before == STEP_GOOD and 1 or 0)
  end
  local over = reads_no_more(flow, standing) - reads_no_more(flow, before)
  if over ~= 0 then
    read(flow, step, over)
  end
  if flow.open == 0 and flow.finished == 0 then
    finish_flow(flow, at)
  elseif flow.open > 0 and flow.finished > 0 then
    disarm(FLOW, wide_text(flow.id) .. ':-1')
    flow.finished, flow.forget_at = 0, 0
    w('ZREM', P .. 'ended_flows', text(flow.id))
  end
  flows.save(flow)
  moved[#moved + 1] = {flow, step}
end

function flows.reckon(flow, step, at)
  local failing = step.skipped or step.ended[2] + step.ended[3] + step.ended[4] > 0
  local standing
  if step.skipped then
    standing = STEP_BAD
  elseif left(step) > 0 or not (step.count > 0 or step.released) then
    standing = STEP_OPEN
  else
    standing = failing and STEP_BAD or STEP_GOOD
  end
  if standing ~= step.standing or failing ~= step.failing then
    note(flow, step, standing, failing, at)
  end
  flows.save_step(flow, step)
end

function flows.note_ended(job, f, state, at)
  local flow, step = of_job(job, f)
  if flow then
    step.ended[state - 3] = step.ended[state - 3] + 1
    flows.reckon(flow, step, at)
  end
end

function flows.note_revived(job, f, at)
  local flow, step = of_job(job, f)
  if flow then
    step.ended[2] = step.ended[2] - 1
    flows.reckon(flow, step, at)
  end
end

-- --- what follows ----------------------------------------------------------------------------------

-- The jobs of a step that are in one of some states, in id order.
function flows.jobs(step, wanted)
  local seqs, found = {}, {}
  if step.count == 0 or left(step) == 0 then
    return found
  end
  for place = 0, step.count - 1 do
    seqs[#seqs + 1] = step.first / 64 + place
  end
  load_all(seqs)
  for _, seq in ipairs(seqs) do
    local job = load(seq)
    if job and wanted[job.state] then
      found[#found + 1] = job
    end
  end
  return found
end

local function release(flow, step, at)
  local due = step.due > at and step.due or 0
  local q, runs = queue(step.queue), {}
  local blocked = flows.jobs(step, {[BLOCKED] = true})
  for _, job in ipairs(blocked) do
    local last = runs[#runs]
    if last and last[1] + last[2] * 64 == job.id then
      last[2] = last[2] + 1
    else
      runs[#runs + 1] = {job.id, 1}
    end
  end
  emit({48, at, H.tenant, step.queue, flow.id, step.number, runs, due})
  step.released = true
  for _, job in ipairs(blocked) do
    count_state(q, BLOCKED, -1)
    w('ZREM', queue_key(q.name, ':blocked'), text(job.seq))
    job.due = 0
    moves.to_pending(q, job, due)
  end
  flows.reckon(flow, step, at)
end

local function give_up(flow, step, policy, at)
  local blocked = flows.jobs(step, {[BLOCKED] = true})
  if #blocked == 0 then
    if step.count == 0 and not step.skipped then
      step.skipped = true
      flows.reckon(flow, step, at)
    end
    return
  end
  local q = queue(step.queue)
  if policy == 'cancel' then
    for _, job in ipairs(blocked) do
      moves.cancel(q, job, CANCELLED, 'dependency_failed', at)
    end
    return
  end
  local most = math.min(GIVEN_UP_AT_ONCE, #blocked)
  if not o(blocked[1]).remove_on_fail then
    moves.evict(q, math.max(0, dead_of(q).entries_max - most), at)
  end
  for place = 1, most do
    moves.fail_for_good(q, blocked[place], 'dependency_failed', at,
      {error = 'a step before it failed', error_class = '', stack = ''})
  end
  if most < #blocked then
    arm(math.max(at, now) + 1, FLOW, wide_text(flow.id) .. ':' .. step.number)
  end
end

local function failed_before(flow, step)
  for _, edge in ipairs(step.after) do
    if edge[2] ~= CONTINUE and flows.step(flow, edge[1]).failing then
      return POLICY_NAMES[edge[2]]
    end
  end
end

function flows.judge(flow, step, at)
  if step.released or flow.cancelled then
    return
  end
  local policy = failed_before(flow, step)
  if step.waits == 0 then
    release(flow, step, at)
  elseif policy then
    give_up(flow, step, policy, at)
  end
end

function flows.forget(flow)
  flows.let_go_all(flow)
  disarm(FLOW, wide_text(flow.id) .. ':-1')
  w('DEL', flow_key(flow.id))
  w('ZREM', P .. 'flows', text(flow.id))
  w('ZREM', P .. 'ended_flows', text(flow.id))
  known_flows[flow.id] = false
end

function flows.settle(at)
  while #moved > 0 do
    local flow, step = moved[1][1], moved[1][2]
    table.remove(moved, 1)
    if known_flows[flow.id] then
      for _, edge in ipairs(step.before) do
        local other = flows.step(flow, edge[1])
        if not other.released and not flow.cancelled then
          if other.waits == 0 then
            release(flow, other, at)
          elseif step.failing and edge[2] ~= CONTINUE then
            give_up(flow, other, POLICY_NAMES[edge[2]], at)
          end
        end
      end
      local surplus = call('ZCARD', P .. 'ended_flows') - S.retention.completed_count
      for _, id in ipairs(surplus > 0 and call('ZRANGE', P .. 'ended_flows', 0, surplus - 1) or {}) do
        flows.forget(flows.find(tonumber(id)))
      end
    end
  end
end

function flows.on_time(at, name)
  local flow = flows.find(tonumber(string.sub(name, 1, 16)))
  local number = tonumber(string.sub(name, 18))
  if not flow then
    return
  elseif number < 0 then
    flows.forget(flow)
  else
    flows.judge(flow, flows.step(flow, number), at)
  end
end

-- The first jobs of the steps that keep a job from starting.
function flows.steps_before(job, f)
  local found, flow, step = {}, of_job(job, f)
  for _, edge in ipairs(flow and step.after or {}) do
    local other = flows.step(flow, edge[1])
    if other.first > 0 and lets_start(other.standing, edge[2]) == 0 and #found < 100 then
      found[#found + 1] = other.first
    end
  end
  return found
end
