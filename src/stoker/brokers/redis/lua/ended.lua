-- Jobs that have ended: how long they are kept, and how they are forgotten.
--
-- `Q:ended` holds those that are kept as the settings say, the oldest first; one deadline for each queue lets them go by
-- age. Jobs with a retention of their own, and jobs of workflows, stand in `Q:own` and `Q:owned` and have a deadline each.
-- exports: keeps, keep, push_out, forget_aged, forget_row, let_go, write_forgotten

-- How long a job with these options is kept after its end, how many are, and whether that is its own; nil if it is not.
function keeps(f, state)
  local retention = S.retention
  local age = f.keep_completed_age_ms or retention.completed_age_ms
  local most = f.keep_completed_count or retention.completed_count
  if age == 0 or most == 0 or (state == COMPLETED and f.remove_on_complete) then
    return nil
  end
  return age, most, f.keep_completed_age_ms or f.keep_completed_count or f.workflow
end

-- Jobs of one queue with the same options have ended at a time, and are kept.
function keep(q, seqs, names, at, age, most, is_own)
  local ended, going, deadlines = {}, {}, {}
  for place, seq in ipairs(seqs) do
    q.serial = q.serial + 1
    ended[2 * place - 1], ended[2 * place] = text(q.serial), names[place]
    if is_own then
      going[2 * place - 1], going[2 * place] = text(q.serial + most), names[place]
      deadlines[2 * place - 1], deadlines[2 * place] = text(at + age), format('%s%016.0f', AGE, seq * 64)
    end
  end
  q.has_counted, q.has_ended = true, true
  if not is_own then
    w_many('ZADD', queue_key(q.name, ':ended'), ended)
    if w('ZADD', P .. 'deadlines', 'NX', text(at + age), AGE .. 'q' .. q.name) == 1 then
      head = nil
    end
    return
  end
  w_many('ZADD', queue_key(q.name, ':owned'), ended)
  w_many('ZADD', queue_key(q.name, ':own'), going)
  w_many('ZADD', P .. 'deadlines', deadlines)
  head = nil
end

-- --- forgetting --------------------------------------------------------------------------------------

local seqs_gone, names_gone, unused = {}, {}, {}

function let_go(number)
  unused[number] = (unused[number] or 0) + 1
end

-- A job that is no longer readable.
function forget_row(seq, name, job)
  if job.extra == 1 then
    w('DEL', P .. 'x:' .. text(seq * 64))
  end
  seqs_gone[#seqs_gone + 1], names_gone[#names_gone + 1] = seq, name
  jobs[seq], changed[seq] = false, nil
  let_go(job.option)
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

function write_forgotten()
  by_bucket('j:', seqs_gone, function(key, from, till, bucket)
    w('HDEL', key, unpack(names_gone, from, till))
    w('HDEL', P .. 'p:' .. text(bucket), unpack(names_gone, from, till))
    if call('EXISTS', key) == 0 then
      w('ZREM', P .. 'b', text(bucket))
    end
  end)
  for number, by in pairs(unused) do
    let_go_option(number, by)
  end
  seqs_gone, names_gone, unused = {}, {}, {}
end

-- Forgets jobs of `Q:ended`.
local function forget_ended(q, seqs, names, raws)
  for place, name in ipairs(names) do
    local job = kind_of(raws[place]).job
    count_state(q, job.state, -1)
    forget_row(seqs[place], name, job)
  end
end

-- Forgets the ended jobs that newer ones have pushed out of what a queue keeps. Of those with a retention of their own
-- `remove_own` (moves.lua) does it.
function push_out(remove_own)
  for name, q in pairs(queues) do
    if q.has_ended and not q.gone then
      q.has_ended = false
      local last = q.serial - S.retention.completed_count
      local names = last > 0 and call('ZRANGEBYSCORE', queue_key(name, ':ended'), '-inf', text(last)) or {}
      if #names > 0 then
        local seqs = numbers_of(names)
        forget_ended(q, seqs, names, read_rows('j:', seqs, names))
        w('ZREMRANGEBYSCORE', queue_key(name, ':ended'), '-inf', text(last))
      end
      if remove_own then
        for _, seq in ipairs(call('ZRANGEBYSCORE', queue_key(name, ':own'), '-inf', text(q.serial))) do
          remove_own(q, tonumber(seq))
        end
      end
    end
  end
  write_forgotten()
end

local AGED_AT_ONCE = 10

-- A queue's deadline: forgets some of the jobs that have been kept long enough, and comes again for the next one.
function forget_aged(q, at)
  local age, gone, again = S.retention.completed_age_ms, {}, nil
  local names = call('ZRANGE', queue_key(q.name, ':ended'), 0, AGED_AT_ONCE)
  local seqs = numbers_of(names)
  local raws = read_rows('j:', seqs, names)
  for place, raw in ipairs(raws) do
    local till = kind_of(raw).job.ended + age
    if till > at or place > AGED_AT_ONCE then
      again = math.max(till, at)
      break
    end
    gone[place] = names[place]
  end
  if #gone > 0 then
    forget_ended(q, seqs, gone, raws)
    w('ZREM', queue_key(q.name, ':ended'), unpack(gone))
  end
  if again then
    w('ZADD', P .. 'deadlines', text(again), AGE .. 'q' .. q.name)
  end
end
