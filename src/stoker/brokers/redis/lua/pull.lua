-- Takes ready jobs from queues in the order given, under one token.
-- ARGV[2]: {queues, count, worker, lease, bytes, wait or ends: how long, or until when, it waits if nothing is there}.
-- Answers {token, next chance, runs, options, payloads}.

local p = unpack_one(ARGV[2])
local room, bytes = p.count, p.bytes
local delivery_token = math.max(token + 1, now * 1000)
local runs, payloads, shown = {}, {}, {}
local passed_over = 0

local function take_group(q, job, group)
  w('ZREM', group_key(q, group), text(job.seq))
  w('HSET', queue_key(q.name, ':h'), group, text(job.seq))
  w('HDEL', queue_key(q.name, ':offered'), group)
end

local function is_takeable(job, priority)
  return job and job.state == WAITING and (o(job).priority or 0) == priority
end

-- Takes jobs of one lane while there is room; `left` is what the queue's limits allow.
local function take_lane(q, priority, is_lifo, left, taken)
  local list = queue_key(q.name, (is_lifo and ':l:' or ':f:') .. text(priority))
  local out = queue_key(q.name, (is_lifo and ':m:' or ':o:') .. text(priority))
  local range = is_lifo and 'ZREVRANGE' or 'ZRANGE'
  while left > 0 and bytes > 0 do
    local wanted = left
    local in_turn = call('LRANGE', list, 0, wanted - 1)
    local out_of_turn = call(range, out, 0, wanted - 1)
    if #in_turn == 0 and #out_of_turn == 0 then
      break
    end
    local seqs = {}
    for _, seq in ipairs(in_turn) do seqs[#seqs + 1] = tonumber(seq) end
    for _, seq in ipairs(out_of_turn) do seqs[#seqs + 1] = tonumber(seq) end
    load_all(seqs)
    local a, b, gone = 1, 1, {}
    -- The smaller head is known only while both heads are: if one side is used up and may have more, look again.
    while left > 0 and bytes > 0 and (a <= #in_turn or b <= #out_of_turn)
      and (a <= #in_turn or #in_turn < wanted) and (b <= #out_of_turn or #out_of_turn < wanted) do
      local x, y = tonumber(in_turn[a]), tonumber(out_of_turn[b])
      local from_list = x and (not y or (is_lifo and x >= y or not is_lifo and x <= y))
      local job = load(from_list and x or y)
      local can_take = is_takeable(job, priority)
      if can_take and job.size > bytes and #taken + #payloads > 0 then
        bytes = 0
        break
      end
      if from_list then
        a = a + 1
      else
        b = b + 1
        gone[#gone + 1] = text(y)
      end
      if can_take then
        taken[#taken + 1] = job
        job.state = ACTIVE
        bytes = bytes - math.min(bytes, job.size)
        left = left - 1
        if job.size > 0 and bytes == 0 then
          bytes = 0
        end
      else
        passed_over = passed_over + 1
      end
    end
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
    local before = #taken
    left = take_lane(q, priority, true, left, taken)
    left = take_lane(q, priority, false, left, taken)
    if left == 0 or bytes == 0 or passed_over > 10000 then
      break
    end
    w('ZREM', queue_key(q.name, ':levels'), level)
  end
  return taken
end

local function same_run(run, job, till)
  local last = run[6][#run[6]]
  return run[2] == job.option and run[3] == job.attempts and run[4] == job.at and run[5] == till
end

-- What the record says of the deliveries, and what the caller gets.
local function deliver(q, taken)
  local told, seqs_by_bucket, places = {}, {}, {}
  for _, job in ipairs(taken) do
    job.state = WAITING
    local f = o(job)
    local run = run_of(job)
    local last = told[#told]
    if last and last[8] == run[8] and last[3] == run[3] and last[4] == run[4]
      and last[1] + last[2] * 64 == run[1] then
      if type(last[7]) == 'number' and last[7] ~= run[7] then
        local sizes = {}
        for place = 1, last[2] do sizes[place] = last[7] end
        last[7] = sizes
      end
      if type(last[7]) == 'table' then
        last[7][#last[7] + 1] = run[7]
      end
      last[2] = last[2] + 1
    else
      told[#told + 1] = run
    end
    if f.group_id then
      take_group(q, job, f.group_id)
    end
    moves.start(q, job, f, delivery_token, p.worker, p.lease or f.lease_ms or 30000)
    local open = runs[#runs]
    if open and open[1] == q.name and same_run(open, job, job.till) then
      open[6][#open[6] + 1] = job.id
    else
      runs[#runs + 1] = {q.name, job.option, job.attempts, job.at, job.till, {job.id}}
    end
    if not shown[job.option] then
      shown[job.option] = option(job.option).raw
    end
    local bucket = bucket_of(job.seq)
    local list = seqs_by_bucket[bucket]
    if not list then
      list = {}
      seqs_by_bucket[bucket] = list
    end
    list[#list + 1] = text(job.seq)
    payloads[#payloads + 1] = ''
    places[text(job.seq)] = #payloads
  end
  for bucket, list in pairs(seqs_by_bucket) do
    for place, payload in ipairs(call('HMGET', P .. 'p:' .. bucket, unpack(list))) do
      payloads[places[list[place]]] = payload
    end
  end
  count_state(q, WAITING, -#taken)
  count_state(q, ACTIVE, #taken)
  count(q, 'started', #taken)
  limits.take(q, #taken)
  emit({4, now, H.tenant, q.name, delivery_token, p.worker, p.lease or NULL, NULL, told})
  q.is_ready = true
  room = room - #taken
end

for _, name in ipairs(p.queues) do
  local q = queue(name)
  if q.known then
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

if #payloads > 0 then
  call_timekeeper() -- the caller works from now on, and does not wait
  token = delivery_token
  local flat = {}
  for number, raw in pairs(shown) do
    flat[#flat + 1] = number
    flat[#flat + 1] = raw
  end
  return finish(text(delivery_token), -1, pack(runs), flat, payloads)
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
local chance = -1
local function may_be(at)
  if chance < 0 or at < chance then
    chance = at
  end
end
for _, name in ipairs(p.queues) do
  local q = queue(name)
  if q.known and not q.paused then
    local due = call('ZRANGE', queue_key(name, ':delayed'), 0, 0, 'WITHSCORES')
    if due[2] then
      may_be(tonumber(due[2]))
    end
    if q.rate then
      limits.fill(q)
      if q.whole <= 0 and has_front(q) then
        may_be(limits.next_at(q))
      end
    end
  end
end
return finish('0', chance)
