-- What is stored of jobs. Jobs of one batch have equal bytes, because nothing but their number differs: what is worked
-- out for one of a kind holds for all of it.
-- exports: FIELDS, JOB, unpacked, packed, changed_row, numbers_of, read_rows, kind_of, fires_at, labels, run_of, tell

FIELDS = {
  'option', 'state', 'at', 'size', 'attempts', 'crashes', 'due', 'token', 'started', 'lease', 'till', 'fires', 'heard',
  'worker', 'cancel', 'ended', 'reason', 'revived', 'retries', 'expires', 'again', 'extra', 'step',
}
local DEFAULTS = {
  attempts = 0, crashes = 0, due = 0, token = 0, started = 0, lease = 0, till = 0, fires = 0, heard = 0, worker = '',
  cancel = 0, ended = 0, reason = '', revived = 0, retries = 0, expires = 0, again = 0, extra = 0, step = 0,
}
JOB = {__index = DEFAULTS}

function unpacked(seq, raw)
  local found, job = unpack_one(raw), {seq = seq, id = seq * 64}
  for place = 1, #found do
    job[FIELDS[place]] = found[place]
  end
  return setmetatable(job, JOB)
end

function packed(job)
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

-- The bytes of jobs like this one, with some fields changed.
function changed_row(job, changes)
  return packed(setmetatable(changes, {__index = job}))
end

function numbers_of(names)
  local seqs = {}
  for place, name in ipairs(names) do
    seqs[place] = tonumber(name)
  end
  return seqs
end

-- The bytes of jobs (`j:`) or their payloads (`p:`), in the order asked for; false where there is none. `names` are the
-- numbers as texts.
function read_rows(kind, seqs, names)
  local found = {}
  by_bucket(kind, seqs, function(key, from, till)
    for place, raw in ipairs(call('HMGET', key, unpack(names, from, till))) do
      found[from + place - 1] = raw
    end
  end)
  return found
end

local kinds = {}

-- A job of a kind, its options, and what a record says of it: for all jobs with these bytes.
function kind_of(raw)
  local kind = kinds[raw]
  if not kind then
    local job = unpacked(0, raw)
    local own = option(job.option)
    kind = {job = job, f = own.f, queue = own.queue, run = run_of(job)}
    kinds[raw] = kind
  end
  return kind
end

-- When a delivery ends by itself.
function fires_at(job, f)
  if (f.timeout_ms or 0) > 0 then
    return math.min(job.till, job.started + f.timeout_ms)
  end
  return job.till
end

-- Whether any job can be taken from a list or a set of the queue, limits aside. Entries at the front whose jobs are
-- elsewhere are dropped on the way, some at a time.
has_front = function(q)
  for _, level in ipairs(call('ZREVRANGE', queue_key(q.name, ':levels'), 0, -1)) do
    if call('EXISTS', queue_key(q.name, ':o:' .. level), queue_key(q.name, ':m:' .. level)) > 0 then
      return true
    end
    for _, kind in ipairs({':f:', ':l:'}) do
      local key = queue_key(q.name, kind .. level)
      for _ = 1, 100 do
        local entry = call('LINDEX', key, 0)
        if not entry then
          break
        end
        local raw = read_rows('j:', {tonumber(entry)}, {entry})[1]
        local found = raw and kind_of(raw)
        if found and found.job.state == WAITING and text(found.f.priority or 0) == level then
          return true
        end
        w('LPOP', key)
      end
      if call('EXISTS', key) == 1 then
        return true
      end
    end
    w('ZREM', queue_key(q.name, ':levels'), level)
  end
  return false
end

-- --- what records say of jobs ------------------------------------------------------------------------

function labels(number)
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
function run_of(job)
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

-- Adds a job to what a record tells: neighbours with the same story become one run. `run` is that of its kind.
function tell(told, id, run)
  local last = told[#told]
  if not (last and last[1] + last[2] * 64 == id and last[3] == run[3] and last[4] == run[4] and last[5] == run[5]
    and last[6] == run[6] and last[8] == run[8]) then
    told[#told + 1] = {id, 1, run[3], run[4], run[5], run[6], run[7], run[8]}
    return
  end
  local sizes = last[7]
  if sizes ~= run[7] then
    if type(sizes) == 'number' then
      sizes = {}
      for place = 1, last[2] do sizes[place] = last[7] end
      last[7] = sizes
    end
    sizes[#sizes + 1] = run[7]
  end
  last[2] = last[2] + 1
end
