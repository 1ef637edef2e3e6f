-- Takes ready jobs from queues in the order given, under one token.
-- ARGV[2]: {queues, count, worker, lease, bytes, wait or ends: how long, or until when, it waits if nothing is there}.
-- Answers {token, next chance, runs, options, payloads}.

local p = unpack_one(ARGV[2])
local is_plain = true
for _, name in ipairs(p.queues) do
  is_plain = is_plain and not queue(name).rate
end
-- parts

local room, bytes = p.count, p.bytes
local delivery_token = math.max(token + 1, now * 1000)
local runs, payloads, shown = {}, {}, {}
local passed_over = 0

local picked = {} -- numbers of jobs: one may stand in a list and in a set

local function is_takeable(entry, priority)
  local kind = entry and entry[3]
  return kind and kind.job.state == WAITING and (kind.f.priority or 0) == priority and not picked[entry[1]]
end

-- The jobs that some entries name: {number, its text, kind or false}.
local function entries_of(names)
  local seqs, entries = numbers_of(names), {}
  for place, raw in ipairs(read_rows('j:', seqs, names)) do
    entries[place] = {seqs[place], names[place], raw and kind_of(raw)}
  end
  return entries
end

-- Takes jobs of one lane while there is room; `left` is what the queue's limits allow. It looks at one entry more than
-- it takes: then the next one is known.
local function take_lane(q, priority, is_lifo, left, taken)
  local list = queue_key(q.name, (is_lifo and ':l:' or ':f:') .. text(priority))
  local out = queue_key(q.name, (is_lifo and ':m:' or ':o:') .. text(priority))
  while left > 0 and bytes > 0 do
    local wanted = left + 1
    local in_turn = entries_of(call('LRANGE', list, 0, wanted - 1))
    local out_of_turn = entries_of(call(is_lifo and 'ZREVRANGE' or 'ZRANGE', out, 0, wanted - 1))
    if #in_turn == 0 and #out_of_turn == 0 then
      break
    end
    local a, b, gone = 1, 1, {}
    -- The smaller head is known only while both heads are: if one side is used up and may have more, look again.
    while left > 0 and bytes > 0 and (a <= #in_turn or b <= #out_of_turn)
      and (a <= #in_turn or #in_turn < wanted) and (b <= #out_of_turn or #out_of_turn < wanted) do
      local x, y = in_turn[a], out_of_turn[b]
      local from_list = x and (not y or (is_lifo and x[1] >= y[1] or not is_lifo and x[1] <= y[1]))
      local entry = from_list and x or y
      local kind = entry[3]
      local can_take = is_takeable(entry, priority)
      if can_take and kind.job.size > bytes and #taken + #payloads > 0 then
        bytes = 0
        break
      end
      if from_list then
        a = a + 1
      else
        b = b + 1
        gone[#gone + 1] = entry[2]
      end
      if can_take then
        taken[#taken + 1], picked[entry[1]] = entry, true
        bytes = bytes - math.min(bytes, kind.job.size)
        left = left - 1
      else
        passed_over = passed_over + 1
      end
    end
    q.has_ready = is_takeable(in_turn[a], priority)
    if a > 1 then
      w('LTRIM', list, a - 1, -1)
    end
    if #gone > 0 then
      w_many('ZREM', out, gone)
    end
    if passed_over > 10000 then
      break
    end
  end
  return left
end

local function take_from(q)
  local left = capacity(q, room)
  local taken = {}
  if left == 0 then
    return taken
  end
  for _, level in ipairs(call('ZREVRANGE', queue_key(q.name, ':levels'), 0, -1)) do
    local priority = tonumber(level)
    left = take_lane(q, priority, true, left, taken)
    left = take_lane(q, priority, false, left, taken)
    if left == 0 or bytes == 0 or passed_over > 10000 then
      break
    end
    w('ZREM', queue_key(q.name, ':levels'), level)
  end
  return taken
end

-- How the jobs of a kind are stored while they run, once for all of them; and the run of the answer that they open.
local function start(kind)
  if not kind.active then
    local f, job = kind.f, kind.job
    local lease, attempts = p.lease or f.lease_ms or 30000, job.attempts + 1
    local fires = fires_at({started = now, till = now + lease}, f)
    kind.active = changed_row(job, {state = ACTIVE, attempts = attempts, token = delivery_token, worker = p.worker,
      started = now, lease = lease, heard = 0, till = now + lease, fires = fires})
    kind.fires, kind.fires_text = fires, text(fires)
    kind.has_more = f.group_id or (f.ttl_ms or 0) > 0
    kind.head = {kind.queue, job.option, attempts, job.at, now + lease}
    shown[job.option] = option(job.option).raw
  end
  return kind
end

-- What few jobs have: a group, a time to live.
local function start_more(q, entry, kind)
  local group = kind.f.group_id
  if group then
    w('ZREM', queue_key(q.name, ':g:' .. #group .. ':' .. group), entry[2])
    w('HSET', queue_key(q.name, ':h'), group, entry[2])
    w('HDEL', queue_key(q.name, ':offered'), group)
  end
  if (kind.f.ttl_ms or 0) > 0 then
    w('ZREM', P .. 'deadlines', format('%s%016.0f', TTL, entry[1] * 64))
  end
end

-- Adds a job to the answer: neighbours of one kind are {first id, how many} of a run.
local function add_to_answer(id, kind)
  local run = runs[#runs]
  if not run or run[1] ~= kind.head[1] or run[2] ~= kind.head[2] or run[3] ~= kind.head[3] or run[4] ~= kind.head[4]
    or run[5] ~= kind.head[5] then
    local h = kind.head
    run = {h[1], h[2], h[3], h[4], h[5], {id, 1}}
    runs[#runs + 1] = run
    return
  end
  local ids = run[6]
  local last = #ids
  if ids[last - 1] + ids[last] * 64 == id then
    ids[last] = ids[last] + 1
  else
    ids[last + 1], ids[last + 2] = id, 1
  end
end

-- Starts jobs: what is stored, what the record says of the deliveries, and what the caller gets.
local function deliver(q, taken)
  local total, told, seqs, names, rows, deadlines, active = #taken, {}, {}, {}, {}, {}, {}
  for place, entry in ipairs(taken) do
    local seq, name, kind = entry[1], entry[2], start(entry[3])
    local id = seq * 64
    tell(told, id, kind.run)
    add_to_answer(id, kind)
    seqs[place], names[place] = seq, name
    rows[2 * place - 1], rows[2 * place] = name, kind.active
    active[2 * place - 1], active[2 * place] = name, name
    deadlines[2 * place - 1], deadlines[2 * place] = kind.fires_text, format('%s%016.0f', LEASE, id)
    if kind.has_more then
      start_more(q, entry, kind)
    end
    if head and (head < 0 or kind.fires < head) then
      head = kind.fires
    end
  end
  for place, payload in ipairs(read_rows('p:', seqs, names)) do
    payloads[#payloads + 1] = payload
  end
  by_bucket('j:', seqs, function(key, from, till)
    w('HSET', key, unpack(rows, 2 * from - 1, 2 * till))
  end)
  w_many('ZADD', queue_key(q.name, ':active'), active)
  w_many('ZADD', P .. 'deadlines', deadlines)
  count_state(q, WAITING, -total)
  count_state(q, ACTIVE, total)
  count(q, 'started', total)
  if q.rate then
    limits.take(q, total)
  end
  emit_raw(pack({4, now, H.tenant, q.name, delivery_token, p.worker, p.lease or NULL, NULL, told}))
  room = room - total
end

for _, name in ipairs(p.queues) do
  local q = queue(name)
  if q.known then
    q.has_ready = false
    local taken = take_from(q)
    if #taken > 0 then
      deliver(q, taken)
    end
    see(q, #payloads > 0 and now or p.ends or now + p.wait)
    q.is_ready = true
    if room == 0 or bytes == 0 then
      break
    end
  end
end

-- The next token of a rate that is used up while more is ready; -1 if no rate holds anything back.
local function next_by_rate()
  local chance = -1
  for _, name in ipairs(p.queues) do
    local q = queue(name)
    if q.known and not q.paused and q.rate then
      limits.fill(q)
      if q.whole <= 0 then
        write_all()
        local at = has_front(q) and limits.next_at(q) or -1
        chance = chance < 0 and at or at < 0 and chance or math.min(chance, at)
      end
    end
  end
  return chance
end

if #payloads > 0 then
  call_timekeeper() -- the caller works from now on, and does not wait
  token = delivery_token
  local flat = {}
  for number, raw in pairs(shown) do
    flat[#flat + 1] = number
    flat[#flat + 1] = raw
  end
  return finish(text(delivery_token), next_by_rate(), pack(runs), flat, payloads)
end
if passed_over > 10000 then
  finish()
  return {MORE, now, -1, sequence, record, lost}
end

-- Nothing there: the caller waits, and keeps the time.
if p.waits and call('EXISTS', P .. 'tick') == 1 then
  w('DEL', P .. 'tick')
end

-- When is the next chance?
local chance = next_by_rate()
for _, name in ipairs(p.queues) do
  local q = queue(name)
  if q.known and not q.paused then
    local due = tonumber(call('ZRANGE', queue_key(name, ':delayed'), 0, 0, 'WITHSCORES')[2])
    if due and (chance < 0 or due < chance) then
      chance = due
    end
  end
end
return finish('0', chance)
