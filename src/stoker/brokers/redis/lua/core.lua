-- What every script begins with: its arguments, the time, options and queues, and how a script ends.
--
-- KEYS[1] is `P n`, the tenant's numbers; KEYS[2] is `P void`, which never exists: a Redis Cluster that moves the slot
-- then refuses the script before its first line. ARGV[1] is a map (MessagePack) with the tenant's name, the highest
-- numbers that this client has seen, and in tests the time; what a command needs follows.
--
-- A script answers {OK, now, next deadline, ...}, or one of the other answers below; `call` of the client knows them.
-- Every function here is made anew at every call, so this file has only what the shortest push needs.

local OK, REFUSED, MORE, NOT_OPEN, TORN, SLOT, FORMAT = 0, 1, 2, 3, 4, 5, 6
local WAITING, DELAYED, BLOCKED, ACTIVE, COMPLETED, FAILED, CANCELLED, EXPIRED = 0, 1, 2, 3, 4, 5, 6, 7
local DUE, TTL, LEASE, DEAD_RETRY, DEAD_AGE, KEY, AGE, KV, EDGES, FLOW, SCHEDULE =
  'a', 'b', 'c', 'd', 'e', 'f', 'g', 'k', 'l', 'm', 'n'
local BUCKET = 32
local NULL = cjson.null
local call, floor, format, pack, unpack_one = redis.call, math.floor, string.format, cmsgpack.pack, cmsgpack.unpack

local P = string.sub(KEYS[1], 1, -2)
local H = unpack_one(ARGV[1])

-- Numbers beyond 10^14 would become 1.79e+15 by `..`.
local function text(number)
  return format('%.0f', number)
end

local n = call('HMGET', KEYS[1], 'format', 'sequence', 'token', 'record', 'now', 'wall', 'dirty', 'all', 'option',
  'watched')
if not n[1] then
  return {NOT_OPEN}
elseif n[1] ~= '1' then
  return {FORMAT, n[1]}
elseif n[7] == '1' then
  return {TORN}
end
local sequence, token, record = tonumber(n[2]), tonumber(n[3]), tonumber(n[4])
local option_number = tonumber(n[9])
local first_token, first_option = token, option_number

-- The tenant's settings, read when one is needed.
local S = setmetatable({}, {__index = function(settings, name)
  setmetatable(settings, nil)
  for field, value in pairs(unpack_one(call('HGET', KEYS[1], 'settings'))) do
    settings[field] = value
  end
  return settings[name]
end})

-- --- time ----------------------------------------------------------------------------------------
-- What Redis' clock has advanced since the last reading; half of it while this tenant's time is ahead. So one wrong
-- reading of the clock does not stop time until the clock has caught up.

local now, wall = tonumber(n[5]), tonumber(n[6])
local began = now
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
-- The first write of a script takes no memory, so a full Redis lets the script end (or the script has asked for room,
-- see room.lua); then `dirty` is set, and `finish` clears it. A script that was broken off in between leaves it set, and every later script answers TORN.

local is_writing, has_room = false, false
local function w(...)
  if not is_writing then
    is_writing = true
    if not has_room then
      call('HDEL', KEYS[1], 'void')
    end
    call('HSET', KEYS[1], 'dirty', '1')
  end
  return call(...)
end

-- Calls one command with many arguments, at most 4,000 at a time. Answers with the last answer.
local function w_many(command, key, arguments)
  local total, answer = #arguments, nil
  for at = 1, total, 4000 do
    answer = w(command, key, unpack(arguments, at, math.min(at + 3999, total)))
  end
  return answer
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

-- Jobs are kept in buckets: calls `run` with the key of each bucket and the places of its jobs, which are neighbours.
local function by_bucket(kind, seqs, run)
  local total, at = #seqs, 1
  while at <= total do
    local bucket, till = floor(seqs[at] / BUCKET), at
    while till < total and till - at < 1000 and floor(seqs[till + 1] / BUCKET) == bucket do
      till = till + 1
    end
    run(P .. kind .. text(bucket), at, till, bucket)
    at = till + 1
  end
end

-- Jobs that a script has loaded (false: not there), and those that it has changed (jobs.lua).
local jobs, changed = {}, {}

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

-- The number for some options in a queue; it counts so many more jobs.
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

-- --- queues --------------------------------------------------------------------------------------

local queues = {}

-- A name is never part of a key's grammar: its length stands before it.
local function queue_key(name, rest)
  return P .. 'q:' .. #name .. ':' .. name .. (rest or '')
end

local function queue(name)
  local found = queues[name]
  if not found then
    local h = call('HMGET', queue_key(name), 'counts', 'serial', 'paused', 'concurrency', 'rate', 'group', 'dead')
    local rate = h[5] and unpack_one(h[5]) or {false, 0, 0, 0}
    found = {
      name = name, known = h[1] and true or false, serial = tonumber(h[2] or 0), paused = h[3] == '1',
      concurrency = tonumber(h[4] or 0), rate = rate[1], whole = rate[2], rest = rate[3], filled = rate[4],
      group = h[6] or 'hold', dead = h[7] and unpack_one(h[7]), is_ready = false,
      counts = h[1] and unpack_one(h[1]) or {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    }
    queues[name] = found
  end
  return found
end

-- Counts of jobs by state come first (state + 1), then these.
local PLACES = {
  bytes = 9, pushed = 10, started = 11, completed = 12, failed = 13, cancelled = 14, expired = 15, retried = 16,
  timed_out = 17, stalled = 18, evicted = 19, wait_ms = 20, run_ms = 21,
}
local totals -- of the tenant, once one has changed; until then n[8]

local function count_state(q, state, by)
  totals = totals or unpack_one(n[8])
  q.counts[state + 1], totals[state + 1] = q.counts[state + 1] + by, totals[state + 1] + by
  q.has_counted = true
end

local function count(q, name, by)
  count_state(q, PLACES[name] - 1, by)
end

-- A queue is there from its first counts on.
local function make_known(q)
  if not q.known then
    q.known, q.has_counted = true, true
    w('SADD', P .. 'queues', q.name)
  end
end

-- A worker is there for a queue until a time. Only schedules with `skip_if_no_worker` ask for it (`watched`).
local function see(q, till)
  if n[10] then
    w('HSET', queue_key(q.name), 'seen', text(till))
  end
end

-- --- records -------------------------------------------------------------------------------------
-- The log has the heads of those records that mean events, as `stoker.records` writes them. `more` is a field beside
-- the head and its value, for bytes that a text cannot hold. Every 64th record lets the oldest ones go.

local function emit_raw(head, more, value)
  record = record + 1
  if more then
    w('XADD', P .. 'log', text(record) .. '-0', 'h', head, more, value)
  else
    w('XADD', P .. 'log', text(record) .. '-0', 'h', head)
  end
  if record % 64 == 0 then
    w('XTRIM', P .. 'log', 'MAXLEN', '~', S.events_max)
  end
end

-- --- the end of a script -------------------------------------------------------------------------

-- Before this script: the next deadline. `head` is the next one now, or nil while that is not known.
local first_head, head = -1, nil

local function head_deadline()
  return tonumber(call('ZRANGE', P .. 'deadlines', 0, 0, 'WITHSCORES')[2] or -1)
end

-- In scripts that need them: how what has changed is written (jobs.lua), rate limits (limits.lua), and whether a job is
-- ready (rows.lua).
local write_all, limits, has_front

-- How many jobs could start now, as far as pause, slots and rate say.
local function capacity(q, most)
  if q.paused then
    return 0
  end
  if q.concurrency > 0 then
    most = math.min(most, q.concurrency - q.counts[ACTIVE + 1])
  end
  if q.rate then
    limits.fill(q)
    most = math.min(most, q.whole)
  end
  return math.max(0, most)
end

-- Tells one client whose calls wait that it has to look at another time: it keeps the time from then on. A caller with
-- waiting calls of its own (`keeps`) does so by itself.
local function call_timekeeper()
  if not H.keeps and not H.now and call('EXISTS', P .. 'tick') == 0 then
    w('RPUSH', P .. 'tick', '1')
  end
end

-- Writes what the script has changed, and puts the markers: one in `wake:Q` means that a job can be taken now, and each
-- chance wakes one pull that waits. `has_ready` says that one is surely there.
local function finish(...)
  if write_all then
    write_all()
  end
  for name, q in pairs(queues) do
    if not q.gone then
      if q.has_counted then
        w('HSET', queue_key(name), 'counts', pack(q.counts), 'serial', text(q.serial))
      end
      if q.is_ready and capacity(q, 1) > 0 and (q.has_ready or has_front(q)) then
        local key = P .. 'wake:' .. #name .. ':' .. name
        if call('EXISTS', key) == 0 then
          w('RPUSH', key, '1')
        end
      end
    end
  end
  head = head or head_deadline()
  if head >= 0 and (first_head < 0 or head < first_head) then
    call_timekeeper()
  end
  if is_writing or now > began then
    local time = text(now)
    w('HSET', KEYS[1], 'sequence', text(sequence), 'token', token == first_token and n[3] or text(token),
      'record', text(record), 'now', time, 'wall', wall == now and time or text(wall),
      'option', option_number == first_option and n[9] or text(option_number),
      'all', totals and pack(totals) or n[8], 'dirty', '0')
  end
  return {OK, now, head, sequence, record, lost, ...}
end

-- Nothing has changed but, perhaps, that time has passed.
local function refuse(code, message)
  finish()
  return {REFUSED, now, head, sequence, record, lost, code, message}
end
