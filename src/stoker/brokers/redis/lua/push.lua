-- Pushes the jobs of a batch into one queue, one after another.
-- ARGV[2]: {queue, kinds, own, each, numbers, sending, request, refused}; then `kinds` options, then the payloads.
-- Reads and writes everything about new jobs. Refuses as a whole, or changes all that it answers with.

local p = unpack_one(ARGV[2])
local kinds, first_payload = p.kinds, 3 + p.kinds
local items = #ARGV - first_payload + 1

-- --- answers of before -----------------------------------------------------------------------------

local sent_key = p.sending and P .. 'sent:' .. #p.sending[1] .. ':' .. p.sending[1]
if p.sending then
  local answer = call('HGET', sent_key, text(p.sending[2]))
  if answer then
    return finish(answer)
  end
  if p.sending[2] < p.sending[3] then
    return refuse('invalid', 'settled')
  end
  local open = 0
  for _, number in ipairs(call('HKEYS', sent_key)) do
    if tonumber(number) >= p.sending[3] then
      open = open + 1
    else
      w('HDEL', sent_key, number)
    end
  end
  if open >= S.sendings_max then
    return refuse('limit_exceeded', text(open))
  end
end
local q = queue(p.queue)
if not q.known and call('SCARD', P .. 'queues') >= S.queues_per_tenant_max then
  return refuse('limit_exceeded', 'queues')
end
if p.request then
  local held = keys.get(q, 'r', p.request)
  if held then
    return finish(held[3])
  end
end

-- --- edges: what they name must have been there --------------------------------------------------------

local fields, raws = {}, {}
for kind = 1, kinds do
  raws[kind] = ARGV[2 + kind]
  fields[kind] = unpack_one(raws[kind])
end
local unknown, seen = {}, {}
for kind = 1, kinds do
  for _, edge in ipairs(fields[kind].depends_on or {}) do
    if not edge.item and not seen[edge.id or 0] then
      seen[edge.id or 0] = true
      if not edges.is_known(edge.id or 0) then
        unknown[#unknown + 1] = edge.id or 0
      end
    end
  end
end
if #unknown > 0 then
  return refuse('unknown_edges', pack(unknown))
end

-- --- items -----------------------------------------------------------------------------------------

-- The holder of a key that makes an item a duplicate, and by which key; `replaces` is a job that makes room.
local function duplicate_of(f)
  if f.custom_id then
    local held = keys.get(q, 'c', f.custom_id)
    if held then
      return held[1], 'custom_id'
    end
  end
  if f.debounce_id then
    local held = keys.get(q, 'd', f.debounce_id)
    if held then
      return held[1], 'debounce_id'
    end
  end
  if f.unique_key then
    local held = keys.get(q, 'u', f.unique_key)
    if held then
      local holder = by_id(held[1])
      if f.on_conflict ~= 'replace' or (holder and holder.state == ACTIVE) then
        if f.on_conflict == 'extend' then
          keys.put(q, 'u', f.unique_key, held[1], (f.unique_ttl_ms or 0) > 0 and now + f.unique_ttl_ms or 0)
        end
        return held[1], 'unique_key'
      end
      return nil, nil, holder
    end
  end
end

local function due_of(f)
  local due = f.run_at or now + (f.delay_ms or 0)
  return due > now and due or 0
end

local payloads_by_bucket = {}

local function keep_payload(seq, payload)
  local bucket = bucket_of(seq)
  local list = payloads_by_bucket[bucket]
  if not list then
    list = {}
    payloads_by_bucket[bucket] = list
  end
  list[#list + 1] = text(seq)
  list[#list + 1] = payload
end

local function sizes_of(list)
  for place = 2, #list do
    if list[place] ~= list[1] then
      return list
    end
  end
  return list[1]
end

-- One record for neighbours with the same options: [1, at, tenant, queue, first, sizes, count, options, due].
local function emit_pushed(first, sizes, raw, due)
  emit_raw('\153' .. pack(1) .. pack(now) .. pack(H.tenant) .. pack(q.name) .. pack(first) .. pack(sizes_of(sizes))
    .. pack(#sizes) .. raw .. pack(due))
end

local function add(number, f, payload)
  sequence = sequence + 1
  local job = setmetatable(
    {seq = sequence, id = sequence * 64, option = number, state = WAITING, at = now, size = #payload}, JOB)
  keep_payload(sequence, payload)
  count(q, 'bytes', #payload)
  count(q, 'pushed', 1)
  if f.unique_key or f.custom_id or f.debounce_id then
    keys.take(q, job, f, now)
  end
  moves.arm_ttl(job, f, 0)
  return job
end

local function place_new(job, f, due)
  if due > 0 then
    moves.to_pending(q, job, due)
  else
    count_state(q, WAITING, 1)
    ready.add(q, job, true)
  end
end

local ids, duplicates = {}, {}

local function is_alone(f)
  return f.depends_on or f.unique_key or f.custom_id or f.debounce_id
end

-- Neighbours that need no look at anything else.
local function push_run(from, till, kind)
  local f, due = fields[kind], due_of(fields[kind])
  local number = intern(p.queue, raws[kind], p.own[kind] == 1, till - from + 1)
  local sizes, first = {}, (sequence + 1) * 64
  for item = from, till do
    local payload = ARGV[first_payload + item - 1]
    local job = add(number, f, payload)
    ids[item], sizes[#sizes + 1] = job.id, #payload
    place_new(job, f, due)
  end
  emit_pushed(first, sizes, raws[kind], due)
end

-- What an item that was judged before with others turns out to be.
local function judged(f, outcome)
  if outcome.extends then
    local held = keys.get(q, 'u', f.unique_key)
    if held then
      keys.put(q, 'u', f.unique_key, held[1], (f.unique_ttl_ms or 0) > 0 and now + f.unique_ttl_ms or 0)
    end
  end
  return outcome.by and outcome.id, outcome.by, outcome.replaces and by_id(outcome.replaces)
end

local function push_alone(item, kind, f, raw, outcome)
  local holder, by, replaces
  if outcome then
    holder, by, replaces = judged(f, outcome)
  else
    holder, by, replaces = duplicate_of(f)
  end
  if holder then
    ids[item], duplicates[#duplicates + 1] = holder, {item, by}
    return
  end
  if replaces then
    moves.cancel(q, replaces, CANCELLED, 'replaced', now)
    edges.settle(now)
  end
  local due = due_of(f)
  local number = intern(p.queue, raw, p.own[kind] == 1, 1)
  local payload = ARGV[first_payload + item - 1]
  local job = add(number, f, payload)
  ids[item] = job.id
  emit_pushed(job.id, {#payload}, raw, due)
  local open = f.depends_on and edges.open(f.depends_on) or {}
  if #open == 0 then
    place_new(job, f, due)
    return
  end
  job.state, job.due = BLOCKED, due
  count_state(q, BLOCKED, 1)
  save(job)
  edges.register(q, job, open)
  local policy = edges.first_failed(open)
  if policy then
    edges.end_dependent(q, job, policy, now)
    edges.settle(now)
  end
end

-- Edges to items become edges to ids. Items that come later get the ids that they will have.
local function resolved(f, ids_of)
  local copy, list = {}, {}
  for name, value in pairs(f) do
    copy[name] = value
  end
  for place, edge in ipairs(f.depends_on) do
    list[place] = {id = edge.item and ids_of[edge.item] or edge.id, on_failure = edge.on_failure}
  end
  copy.depends_on = list
  return copy
end

-- --- items that name each other ----------------------------------------------------------------------
-- As `engine/classify.py` has it: what happens to each item is found out before anything is written, on a copy of the
-- keys and edges after each item, because an item may name a later one.

local function number_of(item)
  return p.numbers and p.numbers[item] or item - 1
end

local function kind_of(item)
  return p.each and p.each[item] or 1
end

local function judge()
  local fresh = {c = {}, d = {}, u = {}} -- keys as this push leaves them; 0 = free
  local outcomes, by_number, created, ended, naming, waiting = {}, {}, {}, {}, {}, {}
  local next_id = sequence * 64

  local function holder(table, key)
    local held = fresh[table][key]
    if held == nil then
      held = (keys.get(q, table, key) or {0})[1]
    end
    return held
  end

  local function free_keys(id)
    local f = created[id] and fields[kind_of(created[id])]
    if not f then
      local job = by_id(id)
      if not job or option(job.option).queue ~= q.name then
        return
      end
      f = o(job)
    end
    if f.unique_key and holder('u', f.unique_key) == id then
      fresh.u[f.unique_key] = 0
    end
    if f.custom_id and f.custom_id_ttl_ms == 0 then
      fresh.c[f.custom_id] = 0
    end
  end

  -- Whether a job that is there ends together with the one that it waits for.
  local function falls_with(waiting_id, id)
    local job = by_id(waiting_id)
    for _, edge in ipairs(job and job.state == BLOCKED and unpack_one(extra(job, 'b') or pack({})) or {}) do
      if edge[1] == id then
        return edge[2] ~= 'continue'
      end
    end
    return false
  end

  local function end_all(first)
    local ending = {first}
    while #ending > 0 do
      local id = table.remove(ending)
      if not ended[id] then
        ended[id] = true
        free_keys(id)
        for _, entry in ipairs(waiting[id] or {}) do
          if entry[2] ~= 'continue' then
            ending[#ending + 1] = outcomes[entry[1]].id
          end
        end
        for _, other in ipairs(call('ZRANGE', P .. 'e:' .. text(id), 0, -1)) do
          if falls_with(tonumber(other), id) then
            ending[#ending + 1] = tonumber(other)
          end
        end
      end
    end
  end

  local function find_duplicate(f)
    for _, entry in ipairs({{'c', 'custom_id'}, {'d', 'debounce_id'}}) do
      local held = f[entry[2]] and holder(entry[1], f[entry[2]]) or 0
      if held > 0 then
        return {id = held, by = entry[2]}
      end
    end
    local held = f.unique_key and holder('u', f.unique_key) or 0
    if held == 0 then
      return {}
    end
    local job = by_id(held)
    if f.on_conflict ~= 'replace' or (job and job.state == ACTIVE) then
      return {id = held, by = 'unique_key', extends = f.on_conflict == 'extend'}
    end
    end_all(held)
    return {replaces = held}
  end

  local function note_edge(item, policy, target)
    waiting[target] = waiting[target] or {}
    table.insert(waiting[target], {item, policy})
    if policy ~= 'continue' and (ended[target] or (not created[target] and edges.is_bad(target))) then
      end_all(outcomes[item].id)
    end
  end

  for item = 1, items do
    for _, edge in ipairs(fields[kind_of(item)].depends_on or {}) do
      if edge.item then
        naming[edge.item] = naming[edge.item] or {}
        table.insert(naming[edge.item], {item, edge.on_failure or 'fail'})
      end
    end
  end
  for item = 1, items do
    local f, number = fields[kind_of(item)], number_of(item)
    local outcome = find_duplicate(f)
    outcomes[item] = outcome
    if not outcome.by then
      next_id = next_id + 64
      outcome.id = next_id
      created[next_id] = item
      if f.unique_key then fresh.u[f.unique_key] = next_id end
      if f.custom_id then fresh.c[f.custom_id] = next_id end
      if f.debounce_id and (f.debounce_ms or 5000) > 0 then fresh.d[f.debounce_id] = next_id end
    end
    by_number[number] = outcome.id
    for _, entry in ipairs(naming[number] or {}) do
      local other = outcomes[entry[1]]
      if entry[1] ~= item and other and created[other.id] then
        note_edge(created[other.id], entry[2], outcome.id)
      end
    end
    for _, edge in ipairs(not outcome.by and f.depends_on or {}) do
      local target = edge.item and by_number[edge.item] or not edge.item and edge.id
      if target then
        note_edge(item, edge.on_failure or 'fail', target)
      end
    end
  end
  return outcomes, by_number, created
end

-- For each item that will be created, the items that it waits for, duplicates followed; and the items that each names.
local function waits_of(outcomes, by_number, created)
  local waiting_for, named = {}, {}
  for item = 1, items do
    local numbers, waits = {}, {}
    for _, edge in ipairs(fields[kind_of(item)].depends_on or {}) do
      if edge.item then
        numbers[#numbers + 1] = edge.item
        local other = created[by_number[edge.item]]
        if other then
          waits[#waits + 1] = number_of(other)
        end
      end
    end
    named[#named + 1] = {number_of(item), numbers}
    if not outcomes[item].by and fields[kind_of(item)].depends_on then
      waiting_for[#waiting_for + 1] = {number_of(item), waits}
    end
  end
  return waiting_for, named
end

local function has_circle(waiting_for)
  local waits, state = {}, {}
  for _, entry in ipairs(waiting_for) do
    waits[entry[1]] = entry[2]
  end
  local function visit(number)
    if state[number] then
      return state[number] == 1
    end
    state[number] = 1
    for _, other in ipairs(waits[number] or {}) do
      if visit(other) then
        return true
      end
    end
    state[number] = 2
    return false
  end
  for _, entry in ipairs(waiting_for) do
    if visit(entry[1]) then
      return true
    end
  end
  return false
end

local outcomes, by_number, created
if p.items_named then
  outcomes, by_number, created = judge()
  local waiting_for, named = waits_of(outcomes, by_number, created)
  if has_circle(waiting_for) then
    return refuse('circles', pack({waiting_for, named}))
  end
end
if items > 0 then
  make_known(q)
end
local buckets_before = floor(sequence / 128)
local item = 1
while item <= items do
  local kind = kind_of(item)
  local f = fields[kind]
  if is_alone(f) then
    local raw = raws[kind]
    if by_number and f.depends_on then
      f = resolved(f, by_number)
      raw = pack(f)
    end
    push_alone(item, kind, f, raw, outcomes and outcomes[item])
    item = item + 1
  else
    local till = item
    while till < items and (not p.each or p.each[till + 1] == kind) do
      till = till + 1
    end
    push_run(item, till, kind)
    item = till + 1
  end
end
for bucket, list in pairs(payloads_by_bucket) do
  w_many('HSET', P .. 'p:' .. bucket, list)
  z_add(P .. 'b', tonumber(bucket), bucket)
end

-- --- the answer ------------------------------------------------------------------------------------

local is_run = #duplicates == 0 and #ids > 0
for place = 2, #ids do
  is_run = is_run and ids[place] == ids[place - 1] + 64
end
local answer = pack({is_run and {ids[1], #ids} or ids, is_run and 1 or 0, duplicates, p.numbers or NULL,
  p.refused or NULL})
if p.request then
  keys.put(q, 'r', p.request, 0, now + S.request_ttl_ms, answer)
end
if p.sending then
  w('HSET', sent_key, text(p.sending[2]), answer)
  w('ZADD', P .. 'senders', text(record), sent_key)
  local surplus = call('ZCARD', P .. 'senders') - S.senders_max
  for _, quiet in ipairs(surplus > 0 and call('ZRANGE', P .. 'senders', 0, surplus - 1) or {}) do
    w('ZREM', P .. 'senders', quiet)
    w('DEL', quiet)
  end
end
return finish(answer)
