-- What workers tell of a running job: progress, log lines, partial results.
-- ARGV[2]: {what, id, token, ...}; ARGV[3]: the bytes of a partial result.

local p = unpack_one(ARGV[2])
local job = by_id(p.id)
if not job then
  return refuse('not_found', 'held')
end
local is_held = job.state == ACTIVE and (not p.token or p.token == job.token)
if (p.what ~= 'log' or p.token) and not is_held then
  return refuse(p.token and 'lost_lease' or 'wrong_state', 'held')
end
if p.what == 'log' and job.state > ACTIVE and job.state ~= FAILED then
  return refuse('wrong_state', text(job.state))
end
local q, f = queue_of(job), o(job)

if p.what == 'progress' then
  emit({12, now, H.tenant, q.name, job.id, p.percent, p.message})
  set_extra(job, 'percent', p.percent, 'message', p.message)
elseif p.what == 'log' then
  emit({13, now, H.tenant, q.name, job.id, p.level, p.message})
  local most = math.min(S.log_lines_max, f.log_lines_max or S.log_lines_max)
  if most > 0 then
    local first, last = tonumber(extra(job, 'l0') or 1), tonumber(extra(job, 'l1') or 0) + 1
    set_extra(job, 'l:' .. last, pack({now, p.level, p.message}), 'l1', last)
    if last - first + 1 > most then
      drop_extra(job, 'l:' .. first)
      set_extra(job, 'l0', first + 1)
    else
      set_extra(job, 'l0', first)
    end
  end
else
  local index = p.index or tonumber(extra(job, 'chunk') or 0)
  emit_raw('\152' .. pack(14, now, H.tenant, q.name, job.id, index) .. '\196\0' .. pack(p.codec), 'd', ARGV[3])
  local first, last = tonumber(extra(job, 'p0') or 1), tonumber(extra(job, 'p1') or 0) + 1
  set_extra(job, 'p:' .. last, ARGV[3], 'i:' .. last, pack({index, p.codec}), 'p1', last,
    'chunk', math.max(tonumber(extra(job, 'chunk') or 0), index + 1))
  if last - first + 1 > S.partials_max then
    drop_extra(job, 'p:' .. first, 'i:' .. first)
    first = first + 1
  end
  set_extra(job, 'p0', first)
end
return finish()
