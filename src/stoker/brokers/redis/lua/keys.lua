-- Unique keys, custom ids, debounce ids and request keys of a queue: one hash, fields `u:KEY`, `c:KEY`, `d:KEY`,
-- `r:KEY`. A value is the job's id and the time when the key is free again (0 = when the job ends).
-- exports: keys

keys = {}

local function place(q, table, key)
  return table .. #q.name .. ':' .. q.name .. ':' .. key
end

function keys.get(q, table, key)
  local raw = call('HGET', queue_key(q.name, ':keys'), table .. ':' .. key)
  return raw and unpack_one(raw) or nil
end

function keys.put(q, table, key, id, expires, more)
  w('HSET', queue_key(q.name, ':keys'), table .. ':' .. key, pack({id, expires, more}))
  if expires > 0 then
    arm(expires, KEY, place(q, table, key))
  else
    disarm(KEY, place(q, table, key))
  end
end

function keys.drop(q, table, key)
  w('HDEL', queue_key(q.name, ':keys'), table .. ':' .. key)
  disarm(KEY, place(q, table, key))
end

-- The keys of a job that has just been pushed, or comes back from the dead letters.
function keys.take(q, job, f, at, revived)
  if f.unique_key then
    keys.put(q, 'u', f.unique_key, job.id, (f.unique_ttl_ms or 0) > 0 and at + f.unique_ttl_ms or 0)
  end
  if f.custom_id then
    keys.put(q, 'c', f.custom_id, job.id, 0)
  end
  if not revived and f.debounce_id and (f.debounce_ms or 5000) > 0 then
    keys.put(q, 'd', f.debounce_id, job.id, at + (f.debounce_ms or 5000))
  end
end

-- A job has ended: its unique key is free, and its custom id is remembered for a while.
function keys.free(q, job, f, at)
  if f.unique_key then
    local held = keys.get(q, 'u', f.unique_key)
    if held and held[1] == job.id then
      keys.drop(q, 'u', f.unique_key)
    end
  end
  if f.custom_id then
    local held = keys.get(q, 'c', f.custom_id)
    if held and held[1] == job.id then
      local ttl = f.custom_id_ttl_ms or 86400000
      if ttl == 0 then
        keys.drop(q, 'c', f.custom_id)
      else
        keys.put(q, 'c', f.custom_id, job.id, at + ttl)
      end
    end
  end
end

-- Whether another job has taken the keys of a dead letter.
function keys.taken(q, job, f)
  if f.unique_key and keys.get(q, 'u', f.unique_key) then
    return true
  end
  local held = f.custom_id and keys.get(q, 'c', f.custom_id)
  return held and held[1] ~= job.id or false
end

-- The time of a key has passed.
function keys.on_time(name)
  local table, length = string.match(name, '^(%a)(%d+):')
  local start = 1 + #length + 2
  local q = queue(string.sub(name, start, start + tonumber(length) - 1))
  w('HDEL', queue_key(q.name, ':keys'), table .. ':' .. string.sub(name, start + tonumber(length) + 1))
end
