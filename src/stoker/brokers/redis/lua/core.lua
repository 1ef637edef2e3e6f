-- What every script begins with: its arguments, the time, jobs, options and queues, and how they are written back.
--
-- KEYS[1] is `P n`, the tenant's numbers; KEYS[2] is `P void`, which never exists: a Redis Cluster that moves the slot
-- then refuses the script before its first line. ARGV[1] is a map (MessagePack) with the tenant's name, the highest
-- numbers that this client has seen, and in tests the time; what a command needs follows.
--
-- A script answers {OK, now, next deadline, ...}, or one of the other answers below; `call` of the client knows them.

local OK, REFUSED, MORE, NOT_OPEN, TORN, SLOT, FORMAT = 0, 1, 2, 3, 4, 5, 6
local WAITING, DELAYED, BLOCKED, ACTIVE, COMPLETED, FAILED, CANCELLED, EXPIRED = 0, 1, 2, 3, 4, 5, 6, 7
local NULL = cjson.null
local call, floor, pack, unpack_one = redis.call, math.floor, cmsgpack.pack, cmsgpack.unpack

local flows -- workflows, in scripts that have them (flows.lua)

local P = string.sub(KEYS[1], 1, -2)
local H = unpack_one(ARGV[1])

-- Numbers beyond 10^14 would become 1.79e+15 by `..`.
local function text(number)
  return string.format('%.0f', number)
end

-- For members of sorted sets: the order of texts is the order of numbers.
local function wide_text(number)
  return string.format('%016.0f', number)
end

local n = call('HMGET', KEYS[1], 'format', 'sequence', 'token', 'record', 'now', 'wall', 'dirty', 'settings', 'option',
  'watched')
if not n[1] then
  return {NOT_OPEN}
elseif n[1] ~= '1' then
  return {FORMAT, n[1]}
elseif n[7] == '1' then
  return {TORN}
end
local S = unpack_one(n[8])
local sequence, token, record = tonumber(n[2]), tonumber(n[3]), tonumber(n[4])
local option_number = tonumber(n[9])

-- --- time ----------------------------------------------------------------------------------------
-- What Redis' clock has advanced since the last reading; half of it while this tenant's time is ahead. So one wrong
-- reading of the clock does not stop time until the clock has caught up.

local now, wall = tonumber(n[5]), tonumber(n[6])
if H.now then
  now = math.max(now, H.now)
else
  local clock = call('TIME')
  local ms = tonumber(clock[1]) * 1000 + floor(tonumber(clock[2]) / 1000)
  if now <= ms then
    now = ms
  else
    now = now + floor(math.max(0, ms - wall) / 2)
  end
  wall = ms
end

-- --- writing -------------------------------------------------------------------------------------
-- The first write of a script takes no memory, so a full Redis lets the script end; then `dirty` is set, and `finish`
-- clears it. A script that was broken off in between leaves it set, and every later script answers TORN.

local is_writing = false
local function w(...)
  if not is_writing then
    is_writing = true
    call('HDEL', KEYS[1], 'void')
    call('HSET', KEYS[1], 'dirty', '1')
  end
  return call(...)
end

-- Calls one command with many arguments, at most 4,000 at a time.
local function w_many(command, key, arguments)
  local total = #arguments
  for at = 1, total, 4000 do
    w(command, key, unpack(arguments, at, math.min(at + 3999, total)))
  end
end

-- What a client knows and this Redis does not was lost: its numbers are never given again.
local GAP = 16777216
local lost = 0
if H.sequence > sequence or H.record > record then
  lost = math.max(H.sequence - sequence, 0)
  local from = sequence + 1
  sequence, record = math.max(H.sequence, sequence) + GAP, math.max(H.record, record) + GAP
  w('ZADD', P .. 'skipped', text(sequence), text(from) .. ':' .. text(sequence))
  w('HINCRBY', KEYS[1], 'losses', '1')
end

-- --- jobs ----------------------------------------------------------------------------------------

local jobs, changed = {}, {}

local FIELDS = {
  'option', 'state', 'at', 'size', 'attempts', 'crashes', 'due', 'token', 'started', 'lease', 'till', 'fires', 'heard',
  'worker', 'cancel', 'ended', 'serial', 'reason', 'revived', 'retries', 'expires', 'again', 'extra', 'own_count', 'step',
}
local DEFAULTS = {
  attempts = 0, crashes = 0, due = 0, token = 0, started = 0, lease = 0, till = 0, fires = 0, heard = 0, worker = '',
  cancel = 0, ended = 0, serial = 0, reason = '', revived = 0, retries = 0, expires = 0, again = 0, extra = 0,
  own_count = 0, step = 0,
}
local JOB = {__index = DEFAULTS}

local function bucket_of(seq)
  return text(floor(seq / 128))
end

local function unpacked(seq, raw)
  local found, job = unpack_one(raw), {seq = seq, id = seq * 64}
  for place = 1, #found do
    job[FIELDS[place]] = found[place]
  end
  return setmetatable(job, JOB)
end

local function packed(job)
  local last = 4
  for place = #FIELDS, 5, -1 do
    if job[FIELDS[place]] ~= DEFAULTS[FIELDS[place]] then
      last = place
      break
    end
  end
  local values = {}
  for place = 1, last do
    values[place] = job[FIELDS[place]]
  end
  return pack(values)
end

-- The job with a sequence number, or false.
local function load(seq)
  local job = jobs[seq]
  if job == nil then
    local raw = call('HGET', P .. 'j:' .. bucket_of(seq), text(seq))
    job = raw and unpacked(seq, raw) or false
    jobs[seq] = job
  end
  return job
end

-- Many at once: a call for each bucket instead of one for each job.
local function load_all(seqs)
  local wanted = {}
  for _, seq in ipairs(seqs) do
    if jobs[seq] == nil then
      local bucket = bucket_of(seq)
      local list = wanted[bucket]
      if not list then
        list = {}
        wanted[bucket] = list
      end
      list[#list + 1] = seq
    end
  end
  for bucket, list in pairs(wanted) do
    local names = {}
    for place, seq in ipairs(list) do
      names[place] = text(seq)
    end
    local found = call('HMGET', P .. 'j:' .. bucket, unpack(names))
    for place, seq in ipairs(list) do
      jobs[seq] = found[place] and unpacked(seq, found[place]) or false
    end
  end
end

local function by_id(id)
  if id % 64 ~= 0 or id <= 0 then
    return false
  end
  return load(id / 64)
end

local function save(job)
  jobs[job.seq], changed[job.seq] = job, job
end

-- --- options -------------------------------------------------------------------------------------
-- Stored once and named by a number; with the queue, since no job changes its queue. `own` ones belong to one job.

local options = {}

local function option(number)
  local found = options[number]
  if not found then
    local raw = call('HGET', P .. 'o', text(number))
    local own, length = struct.unpack('>BH', raw)
    found = {queue = string.sub(raw, 4, 3 + length), raw = string.sub(raw, 4 + length), own = own == 1}
    found.f = unpack_one(found.raw)
    options[number] = found
  end
  return found
end

-- The number for some options in a queue; it counts one more job.
local function intern(queue, raw, own, count)
  local digest = not own and redis.sha1hex(queue .. '\0' .. raw)
  local number = digest and tonumber(call('HGET', P .. 'oi', digest) or nil)
  if not number then
    option_number = option_number + 1
    number = option_number
    w('HSET', P .. 'o', text(number), struct.pack('>BH', own and 1 or 0, #queue) .. queue .. raw)
    if digest then
      w('HSET', P .. 'oi', digest, text(number))
    end
    options[number] = {queue = queue, raw = raw, own = own, f = unpack_one(raw)}
  end
  if digest then
    w('HINCRBY', P .. 'or', text(number), count)
  end
  return number
end

local function let_go_option(number, count)
  local found = option(number)
  if not found.own then
    if w('HINCRBY', P .. 'or', text(number), -count) > 0 then
      return
    end
    w('HDEL', P .. 'or', text(number))
    w('HDEL', P .. 'oi', redis.sha1hex(found.queue .. '\0' .. found.raw))
  end
  w('HDEL', P .. 'o', text(number))
end

local function o(job)
  return option(job.option).f
end

-- --- what only some jobs have: results, errors, history, logs, partial results, edges -----------------

local function extra_key(job)
  return P .. 'x:' .. text(job.id)
end

local function extra(job, name)
  return job.extra == 1 and call('HGET', extra_key(job), name) or false
end

local function set_extra(job, ...)
  if job.extra == 0 then
    job.extra = 1
    save(job)
  end
  w('HSET', extra_key(job), ...)
end

local function drop_extra(job, ...)
  if job.extra == 1 then
    w('HDEL', extra_key(job), ...)
  end
end

-- --- queues --------------------------------------------------------------------------------------

local queues = {}

-- A name is never part of a key's grammar: its length stands before it.
local function queue_key(name, rest)
  return P .. 'q:' .. #name .. ':' .. name .. (rest or '')
end

local function queue(name)
  local found = queues[name]
  if not found then
    local h = call('HMGET', queue_key(name), 'known', 'paused', 'concurrency', 'rate', 'whole', 'rest', 'filled',
      'group', 'dead', 'serial', 'c3')
    found = {
      name = name, known = h[1] == '1', paused = h[2] == '1', concurrency = tonumber(h[3] or 0),
      rate = h[4] and unpack_one(h[4]) or false, whole = tonumber(h[5] or 0), rest = tonumber(h[6] or 0),
      filled = tonumber(h[7] or 0), group = h[8] or 'hold', dead = h[9] and unpack_one(h[9]) or S.dead,
      serial = tonumber(h[10] or 0), active = tonumber(h[11] or 0), deltas = {}, is_ready = false,
    }
    queues[name] = found
  end
  return found
end

local function queue_of(job)
  return queue(option(job.option).queue)
end

local function count(q, name, by)
  q.deltas[name] = (q.deltas[name] or 0) + by
end

local STATE_COUNTS = {[0] = 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7'}

local function count_state(q, state, by)
  if state == ACTIVE then
    q.active = q.active + by
  end
  count(q, STATE_COUNTS[state], by)
end

local function make_known(q)
  if not q.known then
    q.known = true
    w('HSET', queue_key(q.name), 'known', '1')
    w('SADD', P .. 'queues', q.name)
  end
end

-- A worker is there for a queue until a time. Only schedules with `skip_if_no_worker` ask for it (`watched`).
local function see(q, till)
  if n[10] then
    w('HSET', queue_key(q.name), 'seen', text(till))
  end
end

-- --- deadlines -----------------------------------------------------------------------------------
-- One sorted set of all that happens by itself. A member is a letter for its kind, then an id or a key: at equal times
-- kinds come in the order of the letters, and jobs in id order.

local DUE, TTL, LEASE, DEAD_RETRY, DEAD_AGE, KEY, AGE, KV, EDGES, FLOW, SCHEDULE =
  'a', 'b', 'c', 'd', 'e', 'f', 'g', 'k', 'l', 'm', 'n'
local armed, disarmed = {}, {}

local function arm(at, kind, name)
  local member = kind .. name
  disarmed[member] = nil
  armed[member] = at
end

local function disarm(kind, name)
  local member = kind .. name
  armed[member] = nil
  disarmed[member] = true
end

local function arm_job(at, kind, job)
  arm(at, kind, wide_text(job.id))
end

local function disarm_job(kind, job)
  disarm(kind, wide_text(job.id))
end

local function write_deadlines()
  local adding, removing = {}, {}
  for member in pairs(disarmed) do
    removing[#removing + 1] = member
  end
  for member, at in pairs(armed) do
    adding[#adding + 1] = text(at)
    adding[#adding + 1] = member
  end
  if #removing > 0 then
    w_many('ZREM', P .. 'deadlines', removing)
  end
  if #adding > 0 then
    w_many('ZADD', P .. 'deadlines', adding)
  end
  armed, disarmed = {}, {}
end

local function head_deadline()
  local head = call('ZRANGE', P .. 'deadlines', 0, 0, 'WITHSCORES')
  return tonumber(head[2] or -1)
end

-- --- records -------------------------------------------------------------------------------------
-- The log has the heads of those records that mean events, as `stoker.records` writes them. `more` are fields beside
-- the head, for bytes that a text cannot hold.

local function emit_raw(head, more)
  record = record + 1
  local fields = {'h', head}
  for name, value in pairs(more or {}) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  w('XADD', P .. 'log', 'MAXLEN', '~', S.events_max, text(record) .. '-0', unpack(fields))
end

local function emit(values, more)
  emit_raw(pack(values), more)
end

local function labels(number)
  local found = option(number)
  if found.labels == nil then
    local f = found.f
    local has = (f.priority or 0) ~= 0 or (f.tags and #f.tags > 0) or f.group_id or f.trace or f.parent_id or f.name
      or f.workflow or f.schedule or (f.slot or 0) ~= 0
    found.labels = has and {
      f.priority or 0, f.tags or {}, f.group_id or NULL, f.trace or NULL, f.parent_id or NULL, f.name or NULL,
      f.workflow or NULL, f.schedule or NULL, f.slot or 0,
    } or false
  end
  return found.labels
end

-- How a record speaks of a delivery, or of a job without one.
local function run_of(job)
  local run
  if job.state == ACTIVE then
    run = {job.id, 1, job.at, job.attempts, job.started, job.worker, job.size}
  else
    run = {job.id, 1, job.at, job.attempts, 0, '', job.size}
  end
  local shown = labels(job.option)
  if shown then
    run[8] = shown
  end
  return run
end

-- --- the end of a script -------------------------------------------------------------------------

local lists, added, removed, forgotten, unused = {}, {}, {}, {}, {}

-- Members of sorted sets, written together.
local function z_add(key, score, member)
  local list = added[key]
  if not list then
    list = {}
    added[key] = list
  end
  list[#list + 1] = text(score)
  list[#list + 1] = member
end

local function z_remove(key, member)
  local list = removed[key]
  if not list then
    list = {}
    removed[key] = list
  end
  list[#list + 1] = member
end

-- A job that is no longer readable.
local function forget(job)
  if job.extra == 1 then
    w('DEL', extra_key(job))
  end
  local bucket = bucket_of(job.seq)
  local list = forgotten[bucket]
  if not list then
    list = {}
    forgotten[bucket] = list
  end
  list[#list + 1] = text(job.seq)
  unused[job.option] = (unused[job.option] or 0) + 1
  jobs[job.seq], changed[job.seq] = false, nil
end

-- Entries for a list, written together: at its end, or (with `front`) at its beginning.
local function to_list(key, entry, front)
  local list = lists[key]
  if not list then
    list = {front = front}
    lists[key] = list
  end
  list[#list + 1] = entry
end

local function write_jobs()
  local by_bucket = {}
  for seq, job in pairs(changed) do
    local bucket = bucket_of(seq)
    local list = by_bucket[bucket]
    if not list then
      list = {}
      by_bucket[bucket] = list
    end
    list[#list + 1] = text(seq)
    list[#list + 1] = packed(job)
  end
  for bucket, list in pairs(by_bucket) do
    w('HSET', P .. 'j:' .. bucket, unpack(list))
  end
  changed = {}
end

local function write_lists()
  for key, list in pairs(lists) do
    w_many(list.front and 'LPUSH' or 'RPUSH', key, list)
  end
  for key, list in pairs(removed) do
    w_many('ZREM', key, list)
  end
  for key, list in pairs(added) do
    w_many('ZADD', key, list)
  end
  lists, added, removed = {}, {}, {}
end

local function write_forgotten()
  for bucket, list in pairs(forgotten) do
    w_many('HDEL', P .. 'j:' .. bucket, list)
    w_many('HDEL', P .. 'p:' .. bucket, list)
    if call('EXISTS', P .. 'j:' .. bucket) == 0 then
      w('ZREM', P .. 'b', bucket)
    end
  end
  for number, by in pairs(unused) do
    let_go_option(number, by)
  end
  forgotten, unused = {}, {}
end

local function write_counts()
  for name, q in pairs(queues) do
    for field, by in pairs(q.deltas) do
      if by ~= 0 then
        w('HINCRBY', queue_key(name), field, text(by))
        w('HINCRBY', P .. 'all', field, text(by))
      end
    end
    q.deltas = {}
  end
end

-- Forgets the ended jobs that newer ones have pushed out of what a queue keeps (moves.lua).
local push_out

local function write_all()
  write_jobs()
  write_lists()
  if push_out then
    push_out()
  end
  write_forgotten()
  write_lists()
  write_counts()
  write_deadlines()
end

-- How many jobs could start now, as far as pause, slots and rate say (limits.lua), and whether one is ready (ready.lua).
local capacity, has_front

-- A marker in `wake:Q` means that a job can be taken now; each chance wakes one pull that waits.
local function wake_pulls()
  for name, q in pairs(queues) do
    if q.is_ready and not q.gone then
      local key = P .. 'wake:' .. #name .. ':' .. name
      if capacity(q, 1) > 0 and has_front(q) then
        if call('EXISTS', key) == 0 then
          w('RPUSH', key, '1')
        end
      end
    end
  end
end

-- Before this script: the next deadline.
local first_head = -1

-- Tells one client whose calls wait that it has to look at another time: it keeps the time from then on. A caller with
-- waiting calls of its own (`keeps`) does so by itself.
local function call_timekeeper()
  if not H.keeps and not H.now and call('EXISTS', P .. 'tick') == 0 then
    w('RPUSH', P .. 'tick', '1')
  end
end

local function finish(...)
  write_all()
  wake_pulls()
  local head = head_deadline()
  if head >= 0 and (first_head < 0 or head < first_head) then
    call_timekeeper()
  end
  if is_writing or now > tonumber(n[5]) then
    w('HSET', KEYS[1], 'sequence', text(sequence), 'token', text(token), 'record', text(record), 'now', text(now),
      'wall', text(wall), 'option', text(option_number), 'dirty', '0')
  end
  return {OK, now, head, sequence, record, lost, ...}
end

-- Nothing has changed but, perhaps, that time has passed.
local function refuse(code, message)
  finish()
  return {REFUSED, now, head_deadline(), sequence, record, lost, code, message}
end
