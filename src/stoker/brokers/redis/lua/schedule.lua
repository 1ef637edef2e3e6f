-- Schedules. Python decides with the engine's own rules and the calendar; this script carries the decision out if the
-- schedule is still as Python saw it. `q:Q:schedules` holds {version, state} and the schedule as Python wrote it.
-- ARGV[2]: {what, queue, name, ...}. The state is {created, changed, anchor, paused, runs, next, due, done to, made up
-- to, jobs, last}.

local p = unpack_one(ARGV[2])
local CREATED, CHANGED, ANCHOR, PAUSED, RUNS, NEXT, DUE_AT, DONE_TO, MADE_UP, JOBS, LAST = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local q = queue(p.queue)
local key = queue_key(p.queue, ':schedules')
local member = #p.queue .. ':' .. p.queue .. ':' .. (p.name or '')

local function stored(name)
  local raw = call('HGET', key, name)
  if raw then
    local length = struct.unpack('>I', raw)
    local head = unpack_one(string.sub(raw, 5, 4 + length))
    return head[1], head[2], string.sub(raw, 5 + length)
  end
end

local function store(name, version, state, schedule)
  local head = pack({version, state})
  w('HSET', key, name, struct.pack('>I', #head) .. head .. schedule)
end

local function arm_slot(at)
  if at > 0 then
    arm(at, SCHEDULE, member)
  else
    disarm(SCHEDULE, member)
  end
end

local schedule = {}

local function shown(name, version, state, raw, q)
  local live, states = {}, {}
  for place, id in ipairs(state[JOBS]) do
    local job = by_id(id)
    live[place] = job and job.state <= ACTIVE or false
  end
  for place, run in ipairs(state[LAST]) do
    local job = run[3] == 'pushed' and by_id(run[4])
    states[place] = job and job.state or -1
  end
  local seen = tonumber(call('HGET', queue_key(q.name), 'seen') or nil)
  return {pack({name, version, state, live, states, q.counts[ACTIVE + 1], seen or NULL}), raw}
end

-- Answers the schedule, how many schedules and queues there are, and whether this queue is one of them.
function schedule.load()
  local version, state, raw = stored(p.name)
  local found = version and shown(p.name, version, state, raw, q) or false
  return finish(found, tonumber(call('HGET', KEYS[1], 'schedules') or 0), call('SCARD', P .. 'queues'),
    q.known and 1 or 0)
end

function schedule.list()
  local found = {}
  local names = p.queue ~= '' and {p.queue} or call('SMEMBERS', P .. 'queues')
  table.sort(names)
  for _, name in ipairs(names) do
    key = queue_key(name, ':schedules')
    local own = call('HKEYS', key)
    table.sort(own)
    for _, one in ipairs(own) do
      if not p.name or p.name == one then
        local version, state, raw = stored(one)
        found[#found + 1] = {name, shown(one, version, state, raw, queue(name))}
      end
    end
  end
  return finish(found)
end

-- Whether the schedule is no longer as Python saw it: then Python looks again.
local function has_changed()
  local version = stored(p.name) or 0
  return version ~= p.version
end

-- ARGV[3]: its schedule, ARGV[4]: its record.
function schedule.put()
  if has_changed() then
    return finish(0)
  end
  if not q.known and call('SCARD', P .. 'queues') >= S.queues_per_tenant_max then
    return refuse('limit_exceeded', 'queues')
  end
  if p.version == 0 then
    if tonumber(call('HGET', KEYS[1], 'schedules') or 0) >= p.most then
      return refuse('limit_exceeded', 'schedules')
    end
    w('HINCRBY', KEYS[1], 'schedules', 1)
  end
  make_known(q)
  if p.watched then
    w('HSET', KEYS[1], 'watched', '1')
  end
  store(p.name, p.version + 1, p.state, ARGV[3])
  emit_raw(ARGV[4])
  arm_slot(p.state[DUE_AT])
  return finish(1)
end

function schedule.delete()
  if not stored(p.name) then
    return finish(0)
  end
  w('HDEL', key, p.name)
  w('HINCRBY', KEYS[1], 'schedules', -1)
  disarm(SCHEDULE, member)
  emit({44, now, H.tenant, p.queue, p.name})
  return finish(1)
end

local function note(state, run)
  local last = state[LAST]
  last[#last + 1] = run
  if #last > 20 then
    table.remove(last, 1)
  end
end

-- Says why a slot has no job. `run` is {slot, at, outcome, job, reason, until, manual}.
local function pass(version, state, raw, run)
  emit({46, run[2], H.tenant, p.queue, p.name, run[1], run[3], p.following, run[4], run[5], run[6], p.made_up_to, run[7]})
  note(state, run)
  if not run[7] then
    state[DONE_TO], state[MADE_UP] = run[6] > 0 and run[6] or run[1], p.made_up_to
    state[NEXT], state[DUE_AT] = p.following, p.due
    arm_slot(p.due)
  end
  store(p.name, version + 1, state, raw)
end

function schedule.arm()
  if not has_changed() then
    local version, state, raw = stored(p.name)
    state[DUE_AT] = p.due
    store(p.name, version + 1, state, raw)
    arm_slot(p.due)
  end
  return finish(1)
end

function schedule.pass()
  if has_changed() then
    return finish(0)
  end
  local version, state, raw = stored(p.name)
  pass(version, state, raw, p.run)
  return finish(1)
end

-- Pushes the job of a slot: ARGV[3] its options, ARGV[4] its payload. A key that is taken makes it a duplicate.
function schedule.push()
  if has_changed() then
    return finish(0)
  end
  local version, state, raw = stored(p.name)
  local f, at = unpack_one(ARGV[3]), p.at
  for _, table_key in ipairs({{'c', f.custom_id, 'custom_id'}, {'d', f.debounce_id, 'debounce_id'},
    {'u', f.unique_key, 'unique_key'}}) do
    local held = table_key[2] and keys.get(q, table_key[1], table_key[2])
    if held then
      local holder = by_id(held[1])
      if table_key[1] == 'u' and f.on_conflict == 'replace' and not (holder and holder.state == ACTIVE) then
        moves.cancel(q, holder, CANCELLED, 'replaced', at)
        edges.settle(at)
      else
        if table_key[1] == 'u' and f.on_conflict == 'extend' then
          keys.put(q, 'u', f.unique_key, held[1], (f.unique_ttl_ms or 0) > 0 and at + f.unique_ttl_ms or 0)
        end
        pass(version, state, raw, {p.slot, at, 'duplicate', held[1], table_key[3], 0, p.manual})
        return finish(1, pack({held[1], table_key[3]}))
      end
    end
  end
  local due = due_of({delay_ms = f.delay_ms}, at)
  local job = made_jobs(make_jobs(q, ARGV[3], true, 4, 1, at, due))[1]
  keys.take(q, job, f, at)
  moves.arm_ttl(job, f, 0)
  local open = f.depends_on and edges.open(f.depends_on) or {}
  if #open > 0 then
    block(q, job, due)
    edges.register(q, job, open)
  else
    place_new(q, job, f, due)
  end
  state[JOBS] = {state[JOBS][#state[JOBS]], job.id}
  if not state[JOBS][1] then
    state[JOBS] = {job.id}
  end
  note(state, {p.slot, at, 'pushed', job.id, '', 0, p.manual})
  if not p.manual then
    state[RUNS] = state[RUNS] + 1
    state[DONE_TO], state[MADE_UP] = p.slot, p.made_up_to
    state[NEXT], state[DUE_AT] = p.last and 0 or p.following, p.last and 0 or p.due
    arm_slot(state[DUE_AT])
  end
  store(p.name, version + 1, state, raw)
  return finish(1, pack({job.id, NULL}))
end

return schedule[p.what]()
