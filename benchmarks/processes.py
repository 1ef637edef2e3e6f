"""How fast a server in several processes takes in jobs: the same load on one process and on two, side by side.

The load goes to many queues, whose shards are spread over the processes, and comes from several client processes with
several connections each. A connection goes to one of the server's processes, whichever queue it uses. Client and server
share the cores of this machine, so two processes can only use what the clients leave over.
"""

import subprocess
import sys

from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row
from benchmarks.served import CountingSocket, frame, stoker_server, waiting
from benchmarks.sizes import IS_SMOKE, SECONDS, sized
from stoker.cli.measuring import rate
from stoker.model import commands as c

QUEUES = 16
SIZES = (1,) if IS_SMOKE else (1_000, 100, 1)
CLIENTS = sized(4, 1)
CONNECTIONS = 4
"""Of each client."""


def pushes() -> list[Row]:
    return [row for size in SIZES for row in rows_of(size)]


def rows_of(size: int) -> list[Row]:
    with place() as one, place() as two, stoker_server(one) as alone, stoker_server(two, "--processes", "2") as shared:
        rates = []
        for port in (alone, shared):
            rates.append(rate_of(port, size))
            assert waiting(port)
    what = "one push" if size == 1 else f"push, batches of {size:,}"
    load = f"{QUEUES} queues, {CLIENTS} client processes"
    return [
        Row(f"{what}, {load}, 1 process", rates[0]),
        Row(f"{what}, {load}, 2 processes", rates[1], rates[0], note="beside it 1 process"),
    ]


def rate_of(port: int, size: int) -> float:
    """Jobs a second that all clients push together."""
    command = [sys.executable, "-m", "benchmarks.processes", str(port), str(size)]
    clients = [
        subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(CLIENTS)
    ]
    for client in clients:
        assert client.stdout is not None
        client.stdout.readline()  # it is connected
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    return sum(float(client.communicate(timeout=60 + SECONDS)[0]) for client in clients)


def push(port: int, size: int, number: int) -> float:
    """One client: a request under way on each of its connections, each to its own queue."""
    wires = [CountingSocket(port) for _ in range(CONNECTIONS)]
    queues = [f"queue-{(number * CONNECTIONS + place) % QUEUES}" for place in range(CONNECTIONS)]
    if size == 1:
        requests = [frame(c.Push(queue, PAYLOAD)) for queue in queues]
    else:
        requests = [frame(c.PushBatch(queue, [PAYLOAD] * size)) for queue in queues]
    print("connected", flush=True)
    sys.stdin.readline()
    for wire, request in zip(wires, requests, strict=True):
        wire.socket.sendall(request)

    def step() -> int:
        for wire, request in zip(wires, requests, strict=True):
            wire.answers(1)
            wire.socket.sendall(request)
        return size * CONNECTIONS

    found = rate(step, SECONDS)
    for wire in wires:
        wire.answers(1)
        wire.close()
    return found


if __name__ == "__main__":
    print(push(*map(int, sys.argv[1:])))
