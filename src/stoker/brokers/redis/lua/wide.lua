-- Whole numbers beyond 2^53, as far as jitter and rate limits need them: equal to the engine's, bit for bit.
-- exports: wide

wide = {}

-- floor(a * b / m) and (a * b) % m, for a < m <= 2^39 and b < 2^39.
function wide.muldiv(a, b, m)
  local quotient, rest = 0, 0
  for _, part in ipairs({floor(b / 67108864) % 8192, floor(b / 8192) % 8192, b % 8192}) do
    local shifted = rest * 8192
    quotient = quotient * 8192 + floor(shifted / m)
    rest = shifted % m
    local product = a * part
    quotient = quotient + floor(product / m)
    rest = rest + product % m
    if rest >= m then
      quotient, rest = quotient + 1, rest - m
    end
  end
  return quotient, rest
end

-- 64 bits as four limbs of 16, the lowest first.
local function limbs(number)
  return {number % 65536, floor(number / 65536) % 65536, floor(number / 4294967296) % 65536,
    floor(number / 281474976710656) % 65536}
end

local function carried(sums)
  local carry, result = 0, {}
  for place = 1, 4 do
    local value = sums[place] + carry
    result[place] = value % 65536
    carry = floor(value / 65536)
  end
  return result
end

local function add(a, b)
  return carried({a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4]})
end

local function mul(a, b)
  return carried({
    a[1] * b[1],
    a[1] * b[2] + a[2] * b[1],
    a[1] * b[3] + a[2] * b[2] + a[3] * b[1],
    a[1] * b[4] + a[2] * b[3] + a[3] * b[2] + a[4] * b[1],
  })
end

-- x ~ (x >> bits)
local function xor_shift(x, bits)
  local low, high = x[1] + x[2] * 65536, x[3] + x[4] * 65536
  local power = 2 ^ bits
  local shifted_high = floor(high / power)
  local shifted_low = floor(low / power) + (high % power) * (4294967296 / power)
  low = bit.bxor(low, shifted_low) % 4294967296
  high = bit.bxor(high, shifted_high) % 4294967296
  return {low % 65536, floor(low / 65536), high % 65536, floor(high / 65536)}
end

local SEED = {0x7C15, 0x7F4A, 0x79B9, 0x9E37}
local ID = {0xEF95, 0xDE82, 0x2543, 0xD134}
local TRY = {0x642F, 0x78BD, 0x1D64, 0xA076}
local FIRST = {0xE5B9, 0x1CE4, 0x476D, 0xBF58}
local SECOND = {0x11EB, 0x1331, 0x49BB, 0x94D0}

-- The remainder of 64 well-mixed bits of (seed, id, try).
function wide.mixed(seed, id, try, m)
  local x = add(add(mul(limbs(seed), SEED), mul(limbs(id), ID)), mul(limbs(try), TRY))
  x = mul(xor_shift(x, 30), FIRST)
  x = mul(xor_shift(x, 27), SECOND)
  x = xor_shift(x, 31)
  local rest = 0
  for place = 4, 1, -1 do
    rest = (rest * 256 + floor(x[place] / 256)) % m
    rest = (rest * 256 + x[place] % 256) % m
  end
  return rest
end

-- How long a job waits after its k-th failed delivery.
function wide.backoff(policy, k, id)
  local base, cap = policy.base_ms or 1000, policy.cap_ms or 3600000
  local kind, jitter = policy.kind or 'exponential', policy.jitter or 'equal'
  local delay = base
  if kind == 'exponential' then
    delay = base * 2 ^ math.min(k - 1, 62)
  elseif kind == 'linear' then
    delay = base * k
  end
  delay = math.min(delay, cap)
  if jitter == 'none' then
    return delay
  end
  local spread = jitter == 'full' and delay or floor(delay / 2)
  return delay - wide.mixed(S.seed, id, k, spread + 1)
end
