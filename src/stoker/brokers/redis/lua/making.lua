-- New jobs: numbers, payloads, counts and the record of neighbours with the same options.
-- exports: due_of, make_jobs, make_ready

function due_of(f, at)
  local due = f.run_at or at + (f.delay_ms or 0)
  return due > at and due or 0
end

-- Makes jobs of the payloads from ARGV[first] on. They still have to get their place in the queue. One record speaks of
-- all: [1, at, tenant, queue, first, sizes, count, options, due].
function make_jobs(q, raw, is_own, first, total, at, due)
  local made = {option = intern(q.name, raw, is_own, total), at = at, seqs = {}, names = {}, sizes = {}, pairs = {}}
  local seqs, names, sizes, pairs_of = made.seqs, made.names, made.sizes, made.pairs
  local arguments, bytes, is_even, buckets = ARGV, 0, true, {}
  for place = 1, total do
    sequence = sequence + 1
    local payload, name = arguments[first + place - 1], text(sequence)
    local size = #payload
    seqs[place], names[place], sizes[place] = sequence, name, size
    pairs_of[2 * place - 1], pairs_of[2 * place] = name, payload
    bytes, is_even = bytes + size, is_even and size == sizes[1]
  end
  by_bucket('p:', seqs, function(key, from, till, bucket)
    w('HSET', key, unpack(pairs_of, 2 * from - 1, 2 * till))
    buckets[#buckets + 1] = text(bucket)
    buckets[#buckets + 1] = text(bucket)
  end)
  w_many('ZADD', P .. 'b', buckets)
  count(q, 'bytes', bytes)
  count(q, 'pushed', total)
  emit_raw('\153' .. pack(1, at, H.tenant, q.name, seqs[1] * 64, is_even and sizes[1] or sizes, total) .. raw .. pack(due))
  return made
end

-- Jobs that can be taken at once, in the order of their numbers. Nothing but their size differs.
function make_ready(q, f, made)
  local pairs_of, raws = made.pairs, {}
  for place, size in ipairs(made.sizes) do
    local raw = raws[size]
    if not raw then
      raw = pack({made.option, WAITING, made.at, size})
      raws[size] = raw
    end
    pairs_of[2 * place] = raw
  end
  by_bucket('j:', made.seqs, function(key, from, till)
    w('HSET', key, unpack(pairs_of, 2 * from - 1, 2 * till))
  end)
  local priority = text(f.priority or 0)
  local length = w_many(f.lifo and 'LPUSH' or 'RPUSH', queue_key(q.name, (f.lifo and ':l:' or ':f:') .. priority),
    made.names)
  if length == #made.names then -- a list that holds something has its level
    w('ZADD', queue_key(q.name, ':levels'), priority, priority)
  end
  count_state(q, WAITING, #made.seqs)
  q.is_ready, q.has_ready = true, true
end
