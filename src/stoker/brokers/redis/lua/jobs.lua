-- Jobs one by one, with what only some of them have, and deadlines: everything that changes is collected, and written
-- together at the end of the script.
-- exports: wide_text, load, load_all, by_id, save, o, queue_of, dead_of, extra_key, extra, set_extra, drop_extra, arm, disarm, arm_job, disarm_job, emit, z_add, z_remove, forget, remove_own

-- For members of sorted sets: the order of texts is the order of numbers.
function wide_text(number)
  return format('%016.0f', number)
end

-- Many at once: a call for each bucket of neighbours instead of one for each job.
function load_all(seqs)
  local missing, names = {}, {}
  for _, seq in ipairs(seqs) do
    if jobs[seq] == nil then
      missing[#missing + 1], names[#names + 1] = seq, text(seq)
    end
  end
  for place, raw in ipairs(read_rows('j:', missing, names)) do
    jobs[missing[place]] = raw and unpacked(missing[place], raw)
  end
end

-- The job with a sequence number, or false.
function load(seq)
  if jobs[seq] == nil then
    load_all({seq})
  end
  return jobs[seq]
end

function by_id(id)
  if id % 64 ~= 0 or id <= 0 then
    return false
  end
  return load(id / 64)
end

function save(job)
  jobs[job.seq], changed[job.seq] = job, job
end

function o(job)
  return option(job.option).f
end

function queue_of(job)
  return queue(option(job.option).queue)
end

-- The rules for the dead letters of a queue.
function dead_of(q)
  return q.dead or S.dead
end

-- --- what only some jobs have: results, errors, history, logs, partial results, edges -----------------

function extra_key(job)
  return P .. 'x:' .. text(job.id)
end

function extra(job, name)
  return job.extra == 1 and call('HGET', extra_key(job), name) or false
end

function set_extra(job, ...)
  if job.extra == 0 then
    job.extra = 1
    save(job)
  end
  w('HSET', extra_key(job), ...)
end

function drop_extra(job, ...)
  if job.extra == 1 then
    w('HDEL', extra_key(job), ...)
  end
end

-- --- deadlines -----------------------------------------------------------------------------------
-- One sorted set of all that happens by itself. A member is a letter for its kind, then an id or a key: at equal times
-- kinds come in the order of the letters, and jobs in id order.

local armed, disarmed = {}, {}

function arm(at, kind, name)
  local member = kind .. name
  disarmed[member] = nil
  armed[member] = at
end

function disarm(kind, name)
  local member = kind .. name
  armed[member] = nil
  disarmed[member] = true
end

function arm_job(at, kind, job)
  arm(at, kind, wide_text(job.id))
end

function disarm_job(kind, job)
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
  if #removing + #adding > 0 then
    armed, disarmed, head = {}, {}, nil
  end
end

-- --- what is written together --------------------------------------------------------------------

function emit(values, more, value)
  emit_raw(pack(values), more, value)
end

local added, removed = {}, {}

local function add_to(table_of, key, ...)
  local list = table_of[key]
  if not list then
    list = {}
    table_of[key] = list
  end
  for _, value in ipairs({...}) do
    list[#list + 1] = value
  end
end

-- Members of sorted sets.
function z_add(key, score, member)
  add_to(added, key, text(score), member)
end

function z_remove(key, member)
  add_to(removed, key, member)
end

-- A job that is no longer readable.
function forget(job)
  forget_row(job.seq, text(job.seq), job)
end

local function write_jobs()
  local by_key = {}
  for seq, job in pairs(changed) do
    add_to(by_key, P .. 'j:' .. text(floor(seq / BUCKET)), text(seq), packed(job))
  end
  for key, list in pairs(by_key) do
    w('HSET', key, unpack(list))
  end
  changed = {}
end

local function write_sets()
  for key, list in pairs(removed) do
    w_many('ZREM', key, list)
  end
  for key, list in pairs(added) do
    w_many('ZADD', key, list)
  end
  added, removed = {}, {}
end

write_all = function()
  write_jobs()
  write_sets()
  push_out(remove_own)
  write_sets()
  write_deadlines()
end
