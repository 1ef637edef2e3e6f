"""The least that Python must do: the same values made and moved, without any queue logic."""

from collections import deque
from heapq import heappush
from typing import Any

from benchmarks.measure import PAYLOAD
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import STEP


def batch_cycles(batches: int, size: int) -> int:
    """Take a list of payloads in, keep it, give it out, drop it."""
    payloads = [PAYLOAD] * size
    line: deque[list[bytes]] = deque()
    kept: dict[int, list[bytes]] = {}
    for number in range(batches):
        command = c.PushBatch("q", payloads)
        assert max(map(len, command.payloads)) <= 1000
        line.append(list(command.payloads))
        taken = line.popleft()
        kept[number] = taken
        ids = range(number * STEP, (number + size) * STEP, STEP)
        delivery = r.Delivery(number, [])
        assert list(ids) == list(c.Ack(ids, delivery.token).ids)
        assert len(kept.pop(number)) == size
    return batches * size


def single_cycles(jobs: int) -> int:
    """Three calls a job, each making its command, its record and its reply, with a dict, a deque and a heap."""
    broker = _Bare()
    for _ in range(jobs):
        broker.push(c.Push("q", PAYLOAD))
        delivery = broker.pull(c.Pull(("q",)))
        broker.ack(c.Ack((delivery.token,), delivery.token))
    assert not broker.jobs
    return jobs


class _Bare:
    """A dict of jobs, a line of them, a heap of deadlines and a log."""

    def __init__(self) -> None:
        self.jobs: dict[int, Any] = {}
        self.line: deque[int] = deque()
        self.heap: list[tuple[int, int]] = []
        self.log: list[Any] = []
        self.number = 0

    def push(self, command: c.Push) -> r.Pushed:
        self.number += 1
        self.jobs[self.number] = command.payload
        self.line.append(self.number)
        self.log.append(("pushed", self.number))
        return r.Pushed(self.number)

    def pull(self, command: c.Pull) -> r.Delivery:
        number = self.line.popleft()
        heappush(self.heap, (number, number))
        self.log.append(("started", number))
        return r.Delivery(number, (self.jobs[number],))

    def ack(self, command: c.Ack) -> r.Settled:
        del self.jobs[command.ids[0]]
        self.log.append(("completed", command.ids[0]))
        if len(self.heap) > 1000:
            self.heap.clear()
            self.log.clear()
        return r.Settled(1)
