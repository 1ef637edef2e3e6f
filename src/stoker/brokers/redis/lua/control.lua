-- What operators ask of one job: cancel, promote, priority, delay, payload, discard.
-- ARGV[2]: {what, id, ...}; ARGV[3]: a payload, or options with another priority or codec.

local p = unpack_one(ARGV[2])
local job = by_id(p.id)
if not job then
  return refuse('not_found', 'job')
end
local is_live = job.state <= ACTIVE
if not is_live and not ((p.what == 'payload' or p.dead) and job.state == FAILED) then
  return refuse('wrong_state', text(job.state))
end
local q, f = queue_of(job), o(job)

-- The same options with one field changed; Python has written them.
local function with_options(raw)
  local number = intern(q.name, raw, option(job.option).own, 1)
  let_go(job.option)
  job.option = number
  save(job)
end

local control = {}

function control.cancel()
  if job.state == ACTIVE then
    if job.cancel == 0 then
      job.cancel = 1
      save(job)
      emit({11, now, H.tenant, q.name, job.id})
    end
    return finish(show(job), 0)
  end
  local before = show(job)
  moves.cancel(q, job, CANCELLED, 'cancelled', now)
  edges.settle(now)
  write_all()
  job = by_id(p.id)
  if job then
    return finish(show(job), 0)
  end
  return finish(before, dead_of(q).take_cancelled and FAILED or CANCELLED)
end

function control.promote()
  if job.state ~= DELAYED then
    return refuse('wrong_state', text(job.state))
  end
  emit({16, now, H.tenant, q.name, {{job.id, 1}}, true})
  moves.leave(q, job)
  moves.to_pending(q, job, 0)
  return finish()
end

function control.priority()
  emit({18, now, H.tenant, q.name, job.id, p.priority})
  if job.state == WAITING and (f.priority or 0) ~= p.priority then
    ready.leave(q, job)
    with_options(ARGV[3])
    ready.add(q, job, false)
  elseif (f.priority or 0) ~= p.priority then
    with_options(ARGV[3])
  end
  return finish()
end

function control.delay()
  if job.state == ACTIVE or p.token then
    if job.state ~= ACTIVE or (p.token and p.token ~= job.token) then
      return refuse(p.token and 'lost_lease' or 'wrong_state', 'held')
    end
    if job.cancel == 1 then
      moves.cancel(q, job, CANCELLED, 'cancelled', now)
      edges.settle(now)
      return finish()
    end
    local due = p.delay > 0 and now + p.delay or 0
    emit({9, now, H.tenant, q.name, {run_of(job)}, due, ''})
    moves.hand_back(q, job, due, '')
    return finish()
  end
  if job.state == BLOCKED then
    return refuse('wrong_state', text(job.state))
  end
  local due = p.delay > 0 and now + p.delay or 0
  emit({17, now, H.tenant, q.name, job.id, due})
  moves.leave(q, job)
  moves.to_pending(q, job, due)
  return finish()
end

function control.payload()
  emit_raw((p.codec and '\151' or '\150') .. pack(19, now, H.tenant, q.name, job.id, #ARGV[3])
    .. (p.codec and pack(p.codec) or ''))
  if is_live then
    count(q, 'bytes', #ARGV[3] - job.size)
  end
  job.size = #ARGV[3]
  save(job)
  w('HSET', P .. 'p:' .. text(floor(job.seq / BUCKET)), text(job.seq), ARGV[3])
  if ARGV[4] then
    with_options(ARGV[4])
  end
  return finish()
end

function control.discard()
  moves.fail_for_good(q, job, 'explicit_fail', now, {error = 'discarded', error_class = '', stack = ''})
  edges.settle(now)
  return finish()
end

-- The options of a live job (with `dead` also of a dead letter), for Python to change one of their fields.
function control.options()
  return finish(option(job.option).raw, text(job.state))
end

return control[p.what]()
