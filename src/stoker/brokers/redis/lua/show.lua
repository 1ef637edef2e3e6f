-- A job as callers see it: {id, queue, fields of the job, jobs before it}, its options, its payload and its extras.
-- exports: show

function show(job)
  local own, values = option(job.option), {}
  for place, name in ipairs(FIELDS) do
    values[place] = job[name]
  end
  local more = job.extra == 1 and call('HGETALL', extra_key(job)) or {}
  local before = job.state == BLOCKED and job.step > 0 and flows.steps_before(job, own.f) or {}
  local payload = read_rows('p:', {job.seq}, {text(job.seq)})[1]
  return {pack({job.id, own.queue, values, before}), own.raw, payload, more}
end
