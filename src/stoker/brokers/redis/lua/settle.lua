-- Settles deliveries, or renews their leases.
-- ARGV[2]: {what, ids, tokens, ...}; of an ack with results they follow, one for each id, after a mask of those there.
-- Answers what became of each: refusals as {id, code, ...}, and more by what was asked for.

local p = unpack_one(ARGV[2])
local seqs = {}
for place, id in ipairs(p.ids) do
  seqs[place] = floor(id / 64)
end
load_all(seqs)

local held, refused, seen = {}, {}, {}
for place, id in ipairs(p.ids) do
  local wanted = p.tokens and p.tokens[place] or p.token
  local job = by_id(id)
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
    seen[id] = true
    held[#held + 1] = {job, place}
  end
end

-- Deliveries of one queue together, in the order named.
local by_queue, order = {}, {}
for _, entry in ipairs(held) do
  local name = option(entry[1].option).queue
  if not by_queue[name] then
    by_queue[name] = {}
    order[#order + 1] = name
  end
  table.insert(by_queue[name], entry)
end

-- Neighbours with the same story become one run of the record.
local function told_of(entries)
  local told = {}
  for _, entry in ipairs(entries) do
    local run, last = run_of(entry[1]), told[#told]
    if last and last[1] + last[2] * 64 == run[1] and last[3] == run[3] and last[4] == run[4] and last[5] == run[5]
      and last[6] == run[6] and last[8] == run[8] then
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
  end
  return told
end

local CODECS = {bytes = 0, json = 1, msgpack = 2}

local function ack()
  for _, name in ipairs(order) do
    local q, entries = queue(name), by_queue[name]
    local sizes = {}
    see(q, now)
    for place, entry in ipairs(entries) do
      local has = p.results and string.sub(p.results, entry[2], entry[2]) == '1'
      sizes[place] = has and #ARGV[2 + entry[2]] or -1
    end
    emit({5, now, H.tenant, q.name, told_of(entries), NULL, p.results and CODECS[p.codec] or 0},
      p.results and {s = pack(sizes)} or nil)
    local second = text(floor(now / 1000))
    for place, entry in ipairs(entries) do
      local job = entry[1]
      local f = o(job)
      count(q, 'completed', 1)
      count(q, 'wait_ms', job.started - job.at)
      count(q, 'run_ms', now - job.started)
      count(q, 'bytes', -job.size)
      moves.leave_active(q, job)
      drop_extra(job, 'error', 'error_class', 'stack')
      if sizes[place] >= 0 then
        set_extra(job, 'result', ARGV[2 + entry[2]], 'codec', p.codec)
      end
      moves.finish(q, job, f, COMPLETED, now, '')
    end
    for _, key in ipairs({queue_key(name, ':minute'), P .. 'minute'}) do
      if w('HINCRBY', key, second, #entries) == #entries then
        for _, old in ipairs(call('HKEYS', key)) do
          if tonumber(old) <= floor(now / 1000) - 60 then
            w('HDEL', key, old)
          end
        end
      end
    end
  end
  edges.settle(now)
  return #held
end

local function fail()
  local outcomes = {}
  for _, entry in ipairs(held) do
    local job = entry[1]
    local id = job.id
    see(queue_of(job), now)
    local state, due = moves.fail(queue_of(job), job, 'failed', now,
      {error = p.error, error_class = p.error_class, stack = p.stack}, p.final, p.delay)
    edges.settle(now)
    outcomes[#outcomes + 1] = {id, state, due}
  end
  return outcomes
end

local function release()
  local due = p.delay > 0 and now + p.delay or 0
  for _, name in ipairs(order) do
    local q, plain = queue(name), {}
    for _, entry in ipairs(by_queue[name]) do
      if entry[1].cancel == 0 then
        plain[#plain + 1] = entry
      end
    end
    if #plain > 0 then
      local told = {}
      for place, entry in ipairs(plain) do told[place] = run_of(entry[1]) end
      emit({9, now, H.tenant, name, told, due, p.note})
      for _, entry in ipairs(plain) do
        moves.hand_back(q, entry[1], due, p.note)
      end
    end
    for _, entry in ipairs(by_queue[name]) do
      if entry[1].cancel == 1 and entry[1].state == ACTIVE then
        moves.cancel(q, entry[1], CANCELLED, 'cancelled', now)
        edges.settle(now)
      end
    end
  end
  return #held
end

local function extend()
  local till, cancelled = 0, {}
  for _, entry in ipairs(held) do
    local job = entry[1]
    if job.cancel == 1 then
      cancelled[#cancelled + 1] = job.id
    end
    till = math.max(till, p.renew and now + (p.lease or job.lease) or job.till)
  end
  if p.renew then
    for _, name in ipairs(order) do
      local pairs_of = {}
      for _, entry in ipairs(by_queue[name]) do
        local last = pairs_of[#pairs_of]
        if last and last[1] + last[2] * 64 == entry[1].id then
          last[2] = last[2] + 1
        else
          pairs_of[#pairs_of + 1] = {entry[1].id, 1}
        end
        moves.extend(entry[1], o(entry[1]), p.lease or entry[1].lease)
      end
      emit({10, now, H.tenant, name, pairs_of, p.lease or NULL})
    end
  end
  return {#held, till, cancelled}
end

local answers = {ack = ack, fail = fail, release = release, extend = extend}
local answer = answers[p.what]()
return finish(pack({answer, refused}))
