-- Rate limits of a queue. A bucket is `whole` tokens and `rest`, in units of 1/per_ms of a token.

limits = {}

function limits.fill(q)
  local rate = q.rate
  local elapsed = now - q.filled
  if elapsed <= 0 then
    return
  end
  q.filled = now
  local periods = floor(elapsed / rate.per_ms)
  if q.whole + periods * rate.count >= rate.burst then
    q.whole, q.rest = rate.burst, 0
    return
  end
  local tokens, rest = wide.muldiv(elapsed % rate.per_ms, rate.count, rate.per_ms)
  q.whole = q.whole + periods * rate.count + tokens
  q.rest = q.rest + rest
  if q.rest >= rate.per_ms then
    q.whole, q.rest = q.whole + 1, q.rest - rate.per_ms
  end
  if q.whole >= rate.burst then
    q.whole, q.rest = rate.burst, 0
  end
end

function limits.take(q, tokens)
  if q.rate then
    limits.fill(q)
    q.whole = q.whole - tokens
    limits.store(q)
  end
end

function limits.store(q)
  w('HSET', queue_key(q.name), 'rate', pack({q.rate, q.whole, q.rest, q.filled}))
end

-- When the next token is there.
function limits.next_at(q)
  limits.fill(q)
  if q.whole > 0 then
    return now
  end
  return now + math.ceil((q.rate.per_ms - q.rest) / q.rate.count)
end
