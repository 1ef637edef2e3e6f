-- Pushes the jobs of a batch into one queue, one after another.
-- ARGV[2]: {queue, own, each, numbers, sending, request, refused}; then an options value for each of `own`, then payloads.
-- Reads and writes everything about new jobs. Refuses as a whole, or changes all that it answers with.

local p = unpack_one(ARGV[2])
local kinds, first_payload = #p.own, 3 + #p.own
local items = #ARGV - first_payload + 1
local q = queue(p.queue)
local fields, raws, ids, duplicates = {}, {}, {}, {}
local whole_run -- the first id, if all jobs are neighbours
local is_plain = not (p.request or p.items_named or q.rate)
for kind = 1, kinds do
  local raw = ARGV[2 + kind]
  local f = unpack_one(raw)
  raws[kind], fields[kind] = raw, f
  is_plain = is_plain and not (f.unique_key or f.custom_id or f.debounce_id or f.depends_on or f.group_id or f.ttl_ms
    or f.delay_ms or f.run_at)
end
-- parts

-- --- answers of before -----------------------------------------------------------------------------
-- `low` is the lowest number whose answer may still be there.

local sent_key = p.sending and P .. 'sent:' .. #p.sending[1] .. ':' .. p.sending[1]
if p.sending then
  local number, settled = p.sending[2], p.sending[3]
  local kept = call('HMGET', sent_key, text(number), 'low')
  if kept[1] then
    return finish(kept[1])
  end
  if number < settled then
    return refuse('invalid', 'settled')
  end
  local low, over = tonumber(kept[2] or settled), {}
  if settled - low > 1000 then
    for _, field in ipairs(call('HKEYS', sent_key)) do
      over[#over + 1] = field ~= 'low' and tonumber(field) < settled and field or nil
    end
  else
    for one = low, settled - 1 do over[#over + 1] = text(one) end
  end
  if #over > 0 then
    w_many('HDEL', sent_key, over)
  end
  local open = call('HLEN', sent_key) - 1
  if open > 0 and open >= S.sendings_max then
    return refuse('limit_exceeded', text(open))
  end
end
if not q.known and call('SCARD', P .. 'queues') >= S.queues_per_tenant_max then
  return refuse('limit_exceeded', 'queues')
end
if p.request then
  local held = keys.get(q, 'r', p.request)
  if held then
    return finish(held[3])
  end
end

local outcomes, by_number, refusal
if not is_plain then
  refusal = refuse_unknown()
  if p.items_named and not refusal then
    outcomes, by_number, refusal = judge_all()
  end
  if refusal then
    return refusal
  end
end

-- Neighbours that need no look at anything else.
local function push_run(from, till, kind)
  local f = fields[kind]
  local due = due_of(f, now)
  local made = make_jobs(q, raws[kind], p.own[kind] == 1, first_payload + from - 1, till - from + 1, now, due)
  if from == 1 and till == items then
    whole_run = made.seqs[1] * 64
  else
    for place, seq in ipairs(made.seqs) do
      ids[from + place - 1] = seq * 64
    end
  end
  if due == 0 and not f.group_id and not f.ttl_ms then
    return make_ready(q, f, made)
  end
  for _, job in ipairs(made_jobs(made)) do
    moves.arm_ttl(job, f, 0)
    place_new(q, job, f, due)
  end
end

if items > 0 then
  make_known(q)
end
local item = 1
while item <= items do
  local kind = p.each and p.each[item] or 1
  local f = fields[kind]
  if f.depends_on or f.unique_key or f.custom_id or f.debounce_id then
    local raw = raws[kind]
    if by_number and f.depends_on then
      f = resolved(f, by_number)
      raw = pack(f)
    end
    push_alone(item, kind, f, raw, outcomes and outcomes[item])
    item = item + 1
  else
    local till = p.each and item or items
    while till < items and p.each[till + 1] == kind do
      till = till + 1
    end
    push_run(item, till, kind)
    item = till + 1
  end
end

-- --- the answer ------------------------------------------------------------------------------------

local answer = pack({whole_run and {whole_run, items} or ids, whole_run and 1 or 0, duplicates, p.numbers or NULL,
  p.refused or NULL})
if p.request then
  keys.put(q, 'r', p.request, 0, now + S.request_ttl_ms, answer)
end
if p.sending then
  w('HSET', sent_key, text(p.sending[2]), answer, 'low', text(p.sending[3]))
  if w('ZADD', P .. 'senders', text(record), sent_key) == 1 then
    local surplus = call('ZCARD', P .. 'senders') - S.senders_max
    for _, quiet in ipairs(surplus > 0 and call('ZRANGE', P .. 'senders', 0, surplus - 1) or {}) do
      w('ZREM', P .. 'senders', quiet)
      w('DEL', quiet)
    end
  end
end
return finish(answer)
