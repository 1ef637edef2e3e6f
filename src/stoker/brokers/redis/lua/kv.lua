-- Key-value entries: `kv` holds them, `kvkeys` their keys in the order of their bytes.
-- ARGV[2]: {what, ...}; the values follow. An entry is a byte for its codec, 8 for when it leaves, then its value.

local p = unpack_one(ARGV[2])
local is_plain = true
-- parts
local KV_KEY, KEYS_KEY = P .. 'kv', P .. 'kvkeys'

local function entry(key)
  local raw = call('HGET', KV_KEY, key)
  if raw then
    local codec, expires = struct.unpack('>Bd', raw)
    return {codec, expires, string.sub(raw, 10)}
  end
end

local function put(key, codec, expires, value)
  w('HSET', KV_KEY, key, struct.pack('>Bd', codec, expires) .. value)
  w('ZADD', KEYS_KEY, 0, key)
  if expires > 0 then
    arm(expires, KV, key)
  else
    disarm(KV, key)
  end
end

local kv = {}

function kv.get()
  local found = {}
  for place, key in ipairs(p.keys) do
    local one = entry(key)
    found[place] = one and {1, one[1], text(one[2]), one[3]} or {0}
  end
  return finish(found)
end

function kv.set()
  local new = 0
  for _, key in ipairs(p.keys) do
    new = new + 1 - call('HEXISTS', KV_KEY, key)
  end
  if new > 0 and call('HLEN', KV_KEY) + new > p.most then
    return refuse('limit_exceeded', '')
  end
  for place, key in ipairs(p.keys) do
    local ttl = p.ttls[place]
    put(key, p.codecs[place], ttl > 0 and now + ttl or 0, ARGV[2 + place])
  end
  return finish()
end

function kv.delete()
  local there = 0
  for _, key in ipairs(p.keys) do
    if w('HDEL', KV_KEY, key) == 1 then
      there = there + 1
      w('ZREM', KEYS_KEY, key)
      disarm(KV, key)
    end
  end
  return finish(there)
end

function kv.expire()
  local one = entry(p.key)
  if not one then
    return finish(0, '0')
  end
  local expires = p.ttl > 0 and now + p.ttl or 0
  put(p.key, one[1], expires, one[3])
  return finish(1, text(expires))
end

-- Keys in order, from one on; the client compares them with the pattern.
function kv.keys()
  return finish(call('ZRANGEBYLEX', KEYS_KEY, p.from == '' and '-' or '[' .. p.from, '+', 'LIMIT', 0, p.limit))
end

-- Writes a number if the entry is still what the client has read.
function kv.swap()
  local raw = call('HGET', KV_KEY, p.key)
  if (raw or '') ~= ARGV[3] then
    return finish(0, raw or '')
  end
  if not raw and call('HLEN', KV_KEY) >= p.most then
    return refuse('limit_exceeded', '')
  end
  put(p.key, p.codec, p.expires, ARGV[4])
  return finish(1, '')
end

function kv.raw()
  return finish(call('HGET', KV_KEY, p.key) or '')
end

return kv[p.what]()
