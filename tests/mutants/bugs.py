"""The bugs, each with the harness that has to notice it and the words in which it does."""

import msgspec

from tests.mutants.planting import Edit


class Bug(msgspec.Struct, frozen=True):
    """A small change that must not go unnoticed."""

    name: str
    harness: str
    edits: tuple[Edit, ...]
    words: str
    """A pattern that the complaint must match: noticed for another reason is not noticed."""


BUGS = [
    # --- durability ----------------------------------------------------------------------------------
    Bug(
        "reply before commit",
        "killed",
        (Edit("journal.sqlite:SqliteJournal.append", "if defer:", "if True:"),),
        "seed 1, crash [0-9]+: after|'lost': ",
    ),
    Bug(
        "fsync reply without flush",
        "weak moments",
        (Edit("journal.tickets:Tickets.when", "if self.reached >= ticket and", "if"),),
        "lost: ",
    ),
    Bug(
        "reply before a commit that comes later",
        "committed later",
        (Edit("runtime.runtime:Runtime.execute", "if level in self._later:", "if False:"),),
        "answered before the commit: ",
    ),
    Bug(
        "read does not wait for a commit that comes later",
        "committed later",
        (Edit("runtime.runtime:Runtime.commit", "if self._reads_wait:", "if False:"),),
        "answered before the commit: ",
    ),
    Bug(
        "durable mark before the flush",
        "weak moments",
        (
            Edit(
                "journal.sqlite:SqliteJournal.flush",
                """for file in unsealed:
                self.directory.disk.fsync(file.wal, file.wal_path)
            self.directory.mark.set(reached)""",
                """self.directory.mark.set(reached)
            for file in unsealed:
                self.directory.disk.fsync(file.wal, file.wal_path)""",
            ),
        ),
        "refused: .*had been flushed to disk",
    ),
    Bug(
        "turn torn across shards",
        "weak moments",
        (
            Edit(
                "journal.logfile:LogFile.append",
                """with self._connection:
            self._cursor.executemany(INSERT, rows)""",
                """for row in rows:
            self._cursor.execute(INSERT, row)""",
            ),
        ),
        "torn: ",
    ),
    Bug(
        "ids given again after a power cut",
        "weak moments",
        (Edit("journal.recovery:left_out", "else GAP", "else 0"),),
        "reused: ",
    ),
    Bug(
        "closing moves the log unflushed",
        "weak moments",
        (Edit("journal.logfile:LogFile.create", "connection.config(KEEP_WAL, True)", "pass"),),
        "lost: .*|refused: ",
    ),
    Bug(
        "manifest moved into place unflushed",
        "weak moments",
        (Edit("journal.disk:Disk.new_file", "self.fsync(descriptor, path)", "pass"),),
        "refused: .*manifest",
    ),
    Bug(
        "new log file not flushed",
        "power cuts",
        (Edit("journal.logfile:LogFile.create", "disk.fsync(file.wal, file.wal_path)", "pass"),),
        "it does not open: .*no such table",
    ),
    Bug(
        "name of a new log file not flushed",
        "weak moments",
        (Edit("journal.logfile:LogFile.create", "disk.sync_directory(path.parent)", "pass"),),
        "refused: ",
    ),
    Bug(
        "log file does not say what it follows",
        "weak moments",
        (Edit("journal.sqlite:SqliteJournal.go_on", "self._file.begin(self.written)", "pass"),),
        "refused: .*lacks the records",
    ),
    Bug(
        "log file sealed without a flush",
        "weak moments",
        (Edit("journal.logfile:LogFile.seal", '"synchronous", 2', '"synchronous", 0'),),
        "refused: .*(when it was finished|damaged)",
    ),
    # --- recovery ------------------------------------------------------------------------------------
    Bug(
        "checkpoint without position",
        "found again",
        (Edit("engine.checkpoint_loading:_Loading.__init__", "self.position = head.position", "self.position = 0"),),
        "lacks the records 1 to",
    ),
    Bug(
        "row applied twice",
        "found again",
        (Edit("journal.recovery:replay_tail", "apply_again(shard, records)", "apply_again(shard, records * 2)"),),
        "counts .*, and there are|KeyError",
    ),
    Bug(
        "file dropped that something live refers to",
        "found again",
        (Edit("engine.checkpoint_saving:references", "yield from _records_of(batch.payloads)", "pass"),),
        "lacks record",
    ),
    Bug(
        "deferred rows forgotten when they are written",
        "found again",
        (Edit("journal.sqlite:SqliteJournal.append", "rows = self._deferred + rows", "pass"),),
        "lacks the records",
    ),
    Bug(
        "deferred rows forgotten at rotation",
        "found again",
        (
            Edit(
                "journal.sqlite:SqliteJournal.append",
                "self.written[:] = last",
                "self.written[:] = [last[n] if n in dict(turn) else self.written[n] for n in range(len(last))]",
            ),
        ),
        "lacks record",
    ),
    Bug(
        "lease by the clock on the wall",
        "found again",
        (
            Edit(
                "engine.apply.delivery:_start_job",
                "fires = at + lease_ms if",
                "fires = __import__('time').time_ns() // 1_000_000 + lease_ms if",
            ),
        ),
        "none that may be found",
    ),
    Bug(
        "wall time instead of journaled time after a restart",
        "set back",
        (Edit("brokers.local.opening:open_over", "if behind > 0:", "if False:"),),
        "prolonged a lease",
    ),
    Bug(
        "stored batch read from the wrong place",
        "power cuts",
        (
            Edit(
                "runtime.payload_loading:_filled_run",
                "journal.payloads(shard, payloads.sequence)[payloads.places()]",
                "journal.payloads(shard, payloads.sequence)[: payloads.count]",
            ),
        ),
        "seed 0: Intent.*Pull",
    ),
    Bug(
        "timer not armed again after load",
        "saving",
        (Edit("engine.checkpoint_loading:_Loading.place", "self.arm(detail.fires_at, kinds.LEASE, job)", "pass"),),
        "would never expire",
    ),
    # --- transactions --------------------------------------------------------------------------------
    Bug(
        "message taken twice",
        "redelivered",
        (Edit("engine.shard_messages:take", "if number <= shard.taken.get(sender, 0):", "if False:"),),
        "left a trace",
    ),
    Bug(
        "stage published twice after a restart",
        "found again",
        (
            Edit(
                "engine.shard:apply_again",
                "APPLY[type(record)](shard, record)",
                "type(record) is rec.TransactionEnded or APPLY[type(record)](shard, record)",
            ),
        ),
        "none that may be found",
    ),
    # --- rules of the engine -------------------------------------------------------------------------
    Bug(
        "token not compared",
        "reference",
        (Edit("engine.settling:_held_one", "if token is not None and token != lease.token:", "if False:"),),
        "the reference says 'lost_lease', the engine 'nothing'",
    ),
    Bug(
        "retry keeps the old token",
        "reference",
        (
            Edit("engine.apply.moves:leave_active", "detail.token = 0", "pass"),
            Edit(
                "engine.apply.delivery:_start_job",
                "detail.token = record.token",
                "detail.token = detail.token or record.token",
            ),
        ),
        "is not active but has a token",
    ),
    Bug(
        "attempts not counted at delivery",
        "reference",
        (Edit("engine.apply.delivery:_start_job", "detail.attempts += 1", "pass"),),
        "is active without a delivery",
    ),
    Bug(
        "counter missed on cancel",
        "reference",
        (Edit("engine.apply.pending:ended", "queue.count(old, -1)", "pass"),),
        "counters say .*, jobs say",
    ),
    Bug(
        "group not freed when a lease ends",
        "restarted",
        (
            Edit(
                "engine.apply.delivery:retrying",
                'hold=queue.group_on_retry == "hold"',
                'hold=queue.group_on_retry == "hold" or record.reason == Reason.STALLED',
            ),
        ),
        r"assert pulled\(client\) == \[behind\]",
    ),
    Bug(
        "unique key released at the start",
        "invariants",
        (
            Edit(
                "engine.apply.delivery:_start_job",
                "job.state = ACTIVE",
                "job.state = ACTIVE; job.queue.unique_keys.pop(options.unique_key, None)",
            ),
        ),
        "I12: .* hold",
    ),
    Bug(
        "tenant not compared",
        "reference",
        (
            Edit(
                "engine.settling:_held_one",
                "if part is None or part.queue.tenant.name != tenant:",
                "if part is None:",
            ),
        ),
        "the reference says 'not_found', the engine '(nothing|lost_lease)'",
    ),
    Bug(
        "rate limit off by one",
        "reference",
        (Edit("engine.token_bucket:TokenBucket.available", "// self.limit.per_ms", "// self.limit.per_ms + 1"),),
        "reference: Parked.*engine: Delivery|the reference says",
    ),
    Bug(
        "lease ends a millisecond late",
        "reference",
        (Edit("engine.apply.delivery:_start_job", "fires = at + lease_ms if", "fires = at + lease_ms + 1 if"),),
        "the reference says",
    ),
    Bug(
        "quick way forgets a counter",
        "replay",
        (Edit("engine.fast_path:pull", "queue.totals[T_STARTED] += 1", "pass"),),
        r"assert dump\(again\) == state",
    ),
    Bug(
        "pause forgotten by a checkpoint",
        "checkpoints",
        (
            Edit(
                "engine.checkpoint_loading:_Loading.queue",
                "saved.known, saved.paused, saved",
                "saved.known, False, saved",
            ),
        ),
        r"assert dump\(made\) == dump\(live\)",
    ),
    Bug(
        "going on after a write that failed",
        "nth fault",
        (Edit("journal.sqlite:SqliteJournal._write", "self.fail(error)", "return"),),
        "lacks the records",
    ),
    # --- schedules -----------------------------------------------------------------------------------
    Bug(
        "slots counted from the clock",
        "slots",
        (Edit("engine.schedules:next_slot", "planned.anchor, slot)", "planned.anchor, shard.now)"),),
        "records up to [0-9]+, schedule [a-z]+",
    ),
    Bug(
        "slot pushed again after a restart",
        "slots",
        (
            Edit(
                "engine.shard:apply_again",
                "APPLY[type(record)](shard, record)",
                "APPLY[type(record)](shard, record); type(record) is rec.ScheduledPush and not record.manual and"
                " apply_schedules.plan_slot(shard, apply_schedules.find(shard, record), record.slot, record.at)",
            ),
        ),
        "would push a slot twice",
    ),
    Bug(
        "next slot not armed again after load",
        "slots",
        (Edit("engine.checkpoint_loading:_Loading.schedule", "if planned.due:", "if False:"),),
        "would never come",
    ),
    Bug(
        "overlap not looked at",
        "reference",
        (Edit("engine.schedules:hindered_by", 'if planned.schedule.overlap == "allow":', "if True:"),),
        "the reference says|reference: 'not_found'",
    ),
    Bug(
        "workers counted that were there long ago",
        "reference",
        (Edit("engine.presence:has_worker", "queue.worker_seen_at <= WORKER_SEEN_MS", "queue.worker_seen_at >= 0"),),
        "the reference says",
    ),
    Bug(
        "missed slots made up for one too many",
        "reference",
        (Edit("engine.schedules:miss", "while kept < wanted", "while kept <= wanted"),),
        "the reference says",
    ),
    # --- workflows -----------------------------------------------------------------------------------
    Bug(
        "step let go whatever came of the one before it",
        "flows",
        (Edit("engine.workflow_state:lets_start", "standing == GOOD or", "standing != OPEN or"),),
        "workflow [0-9]+|started before its time|waits for",
    ),
    Bug(
        "failure stops at the next step",
        "flows",
        (
            Edit(
                "engine.workflow_state:reckon",
                "failing = step.skipped or step.bad > 0",
                "failing = step.bad > 0 and step.released",
            ),
        ),
        "workflow [0-9]+|waits in vain|'failed'",
    ),
    Bug(
        "retry leaves those waiting who failed with another",
        "flows",
        (Edit("engine.workflows:retry_here", "blocked=not step.released", "blocked=False"),),
        "workflow [0-9]+|may start",
    ),
    Bug(
        "message of another shard taken again",
        "between shards",
        (Edit("engine.shard_messages:take", "if number <= shard.taken.get(sender, 0):", "if False:"),),
        ".",
    ),
    Bug(
        "what is heard too early is forgotten",
        "between shards",
        (
            Edit(
                "engine.workflows:take_standing",
                "shard.emit(rec.HeardEarly(now, tenant, message.workflow, message))",
                "pass",
            ),
        ),
        "for ever|never ends",
    ),
    # --- waking up -----------------------------------------------------------------------------------
    Bug(
        "pushed workflow wakes nobody",
        "wakes",
        (Edit("runtime.runtime:Runtime._execute_any", "shard.serve(now)", "pass"),),
        "sleeps on: .*workflow",
    ),
    Bug(
        "message of another shard wakes nobody",
        "wakes",
        (Edit("runtime.outbox:deliver", "shards.at(to).serve(now)", "pass"),),
        "sleeps on: .*elsewhere",
    ),
    Bug(
        "message for another process is not sent",
        "wakes elsewhere",
        (Edit("runtime.runtime:Runtime._deliver", "self.letters()", "pass"),),
        "'dependency_ended_elsewhere': 'not answered",
    ),
    Bug(
        "pushed job wakes nobody",
        "wakes",
        (Edit("engine.fast_path:push", "shard.dirty.append(queue)", "pass"),),
        "sleeps on: .*push",
    ),
    Bug(
        "pushed batch wakes nobody",
        "wakes",
        (Edit("engine.apply.push:_add_batch", "shard.dirty.append(queue)", "pass"),),
        "sleeps on: .*batch",
    ),
    Bug(
        "job that may start wakes nobody",
        "wakes",
        (Edit("engine.apply.moves:make_waiting", "shard.dirty.append(queue)", "pass"),),
        "sleeps on: ",
    ),
    Bug(
        "batch whose delay is over wakes nobody",
        "wakes",
        (Edit("engine.apply.pending:_batch_became_due", "shard.dirty.append(queue)", "pass"),),
        "sleeps on: .*batch_delay_over",
    ),
    Bug(
        "step that is let go wakes nobody",
        "wakes",
        (Edit("engine.apply.workflows:_release_batch", "shard.dirty.append(queue)", "pass"),),
        "sleeps on: .*step_released",
    ),
    Bug(
        "freed slot wakes nobody",
        "wakes",
        (Edit("engine.fast_path:ack", "shard.dirty.append(queue)", "pass"),),
        "sleeps on: .*slot_free",
    ),
    Bug(
        "slot freed with a result wakes nobody",
        "wakes",
        (Edit("engine.apply.moves:leave_active", "shard.dirty.append(job.queue)", "pass"),),
        "sleeps on: .*slot_free_with_a_result",
    ),
    Bug(
        "slots freed by a batch wake nobody",
        "wakes",
        (Edit("engine.apply.moves:leave_active_run", "shard.dirty.append(queue)", "pass"),),
        "sleeps on: .*slots_of_a_batch_free",
    ),
    Bug(
        "freed group wakes nobody",
        "wakes",
        (Edit("engine.apply.moves:free_group", "shard.dirty.append(queue)", "pass"),),
        "sleeps on: .*(workflow_cancelled|head_of_a_group)",
    ),
    Bug(
        "limit that was changed wakes nobody",
        "wakes",
        (Edit("engine.apply.queue:queue_configured", "shard.dirty.append(queue)", "pass"),),
        "sleeps on: .*(raised|pause_ended)",
    ),
    Bug(
        "waiters lost when a queue is obliterated",
        "wakes",
        (
            Edit(
                "engine.apply.queue:queue_obliterated",
                "shard.queue(record.tenant, record.queue).waiters = waiters",
                "pass",
            ),
        ),
        "sleeps on: .*push_after_obliterate",
    ),
    Bug(
        "end of a job not told to those who wait for it",
        "wakes",
        (Edit("engine.shard:Shard.serve", "self.answer(parked, ended)", "pass"),),
        "sleeps on: .*job_",
    ),
    Bug(
        "event not told to those who wait for it",
        "wakes",
        (Edit("runtime.readers:Readers.wake", "self._answer_reader(parked, page)", "pass"),),
        "sleeps on: .*event_of",
    ),
    Bug(
        "waiting pull does not look for the next token",
        "wakes",
        (Edit("engine.pulling:arm_refill", "shard.deadlines.arm(at, kinds.REFILL, queue)", "pass"),),
        "sleeps on: .*token_back",
    ),
    Bug(
        "token that is back wakes nobody",
        "wakes",
        (Edit("engine.timers:on_refill", "shard.dirty.append(queue)", "pass"),),
        "sleeps on: .*token_back",
    ),
    Bug(
        "timekeeper not told of the token that a held pull waits for",
        "wakes",
        (
            Edit(
                "brokers.local.broker:LocalBroker.begin",
                "self._wake_keepers(self.runtime.turn_next_at())",
                "pass",
            ),
        ),
        "sleeps on: .*token_back, at a server",
    ),
    Bug(
        "timekeeper of a server not told of a deadline",
        "wakes",
        (Edit("brokers.local.broker:LocalBroker.end", "self._wake_keepers(self.runtime.turn_next_at())", "pass"),),
        "sleeps on: .*, at a server",
    ),
    Bug(
        "timekeeper of an embedded broker not told of a deadline",
        "wakes",
        (Edit("brokers.local.broker:LocalBroker._wake_sleepers", "self._wake_keepers(self.runtime.next_at)", "pass"),),
        "sleeps on: .*, embedded",
    ),
    Bug(
        "job lost of a pull that is given up before its turn ends",
        "given up",
        (
            Edit(
                "brokers.local.broker:LocalBroker._give_back",
                "if waiter.parked.done and waiter.reply is NO_REPLY:",
                "if False:",
            ),
        ),
        "the job is active",
    ),
    Bug(
        "reply on its way to a client that has given up is forgotten",
        "given up",
        (
            Edit(
                "server.dispatcher:Dispatcher.give_up",
                "waiter.done = partial(self.return_unsent, waiter.tenant, waiter.command)",
                "waiter.done = lambda reply: None",
            ),
        ),
        "the job is active",
    ),
    Bug(
        "worker does not break off its pull for a token",
        "rate of a worker",
        (Edit("worker.pulling:Puller._token_came", "self.reconsider()", "pass"),),
        "waits for",
    ),
    Bug(
        "worker takes a token twice",
        "rate of a worker",
        (Edit("worker.pace:HandlerRateLimit.take", "self._refilled()", "self._tokens"),),
        "began too early",
    ),
    # --- sharing -------------------------------------------------------------------------------------
    Bug(
        "push sent again without a name",
        "lost answers",
        (
            Edit(
                "brokers.resending:pushed_once",
                "yield msgspec.structs.replace(push, sending=sending)",
                "yield push",
            ),
            Edit("brokers.remote.broker:RemoteBroker._push", "replace(push, sending=sending)", "replace(push)"),
            Edit(
                "brokers.remote.broker:RemoteBroker._numbered_async", "replace(push, sending=sending)", "replace(push)"
            ),
            Edit("brokers.resending:may_resend", "any(getattr(command, key) is not None for key in row.keys)", "True"),
        ),
        "assert payloads",
    ),
    Bug(
        "settled passes an open number",
        "lossy network",
        (Edit("brokers.sending_window:SendingWindow.take", "number, self._lowest)", "number, number)"),),
        "settled passes a number that is open",
    ),
    Bug(
        "answers forgotten that are not settled",
        "lossy network",
        (Edit("engine.senders:Answers.settle", "bisect_left(", "1 + bisect_left("),),
        "a push that was sent again made a second job",
    ),
    Bug(
        "number of a gathered push not recorded",
        "gathered",
        (Edit("engine.senders:remember_runs", "for run in runs]", "for run in runs[1:]]"),),
        "a push that was sent again made a second job",
    ),
    Bug(
        "numbers of gathered pushes recorded before their jobs",
        "gathered",
        (
            Edit(
                "engine.gathered:push_gathered",
                "if runs is None or sizes",
                """if runs:
        ahead = (shard.sequence + 1) * STEP | shard.number
        senders.remember_runs(shard, shard.queue(tenant, command.queue), runs, ahead, now)
    if runs is None or sizes""",
            ),
        ),
        "a refused push has the number of a job",
    ),
    Bug(
        "forked child keeps its parent's name",
        "forked",
        (Edit("brokers.remote.broker:RemoteBroker.begin_anew", "self._windows = SendingWindows()", "pass"),),
        "assert sorted",
    ),
    Bug(
        "push not sent again",
        "shared",
        (Edit("brokers.resending:may_resend", "return any(", "return kind not in NUMBERED and any("),),
        "it is not known whether this",
    ),
    Bug(
        "lease ends before its time",
        "histories",
        (
            Edit("engine.apply.moves:fires_at", "return lease_until", "return lease_until - 180"),
            Edit("engine.apply.delivery:_start_job", "fires = at + lease_ms if", "fires = at + lease_ms - 180 if"),
        ),
        "'(doubled|unleased)': ",
    ),
]
