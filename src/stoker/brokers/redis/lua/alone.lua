-- Items of a push that need a look at others: those with keys or dependencies, and those that name each other.
-- exports: push_alone, refuse_unknown, judge_all, resolved

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

-- What edges name must have been there. Answers with the refusal, if one is due.
function refuse_unknown()
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

function push_alone(item, kind, f, raw, outcome)
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
  local due = due_of(f, now)
  local job = made_jobs(make_jobs(q, raw, p.own[kind] == 1, first_payload + item - 1, 1, now, due))[1]
  ids[item] = job.id
  keys.take(q, job, f, now)
  moves.arm_ttl(job, f, 0)
  local open = f.depends_on and edges.open(f.depends_on) or {}
  if #open == 0 then
    place_new(q, job, f, due)
    return
  end
  block(q, job, due)
  edges.register(q, job, open)
  local policy = edges.first_failed(open)
  if policy then
    edges.end_dependent(q, job, policy, now)
    edges.settle(now)
  end
end

-- Edges to items become edges to ids. Items that come later get the ids that they will have.
function resolved(f, ids_of)
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

local function kind_number(item)
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
    local f = created[id] and fields[kind_number(created[id])]
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
    for _, edge in ipairs(fields[kind_number(item)].depends_on or {}) do
      if edge.item then
        naming[edge.item] = naming[edge.item] or {}
        table.insert(naming[edge.item], {item, edge.on_failure or 'fail'})
      end
    end
  end
  for item = 1, items do
    local f, number = fields[kind_number(item)], number_of(item)
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
    for _, edge in ipairs(fields[kind_number(item)].depends_on or {}) do
      if edge.item then
        numbers[#numbers + 1] = edge.item
        local other = created[by_number[edge.item]]
        if other then
          waits[#waits + 1] = number_of(other)
        end
      end
    end
    named[#named + 1] = {number_of(item), numbers}
    if not outcomes[item].by and fields[kind_number(item)].depends_on then
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

-- Finds out what becomes of each item. Answers with the refusal, if items wait for themselves.
function judge_all()
  local outcomes, by_number, created = judge()
  local waiting_for, named = waits_of(outcomes, by_number, created)
  if has_circle(waiting_for) then
    return nil, nil, refuse('circles', pack({waiting_for, named}))
  end
  return outcomes, by_number
end
