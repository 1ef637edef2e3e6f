"""The examples of docs/protocol.md, replayed byte for byte against a real server over real sockets.

A fenced block `wire FRAMING` is one story with a server of its own, whose clock stands still. `>` is sent, `<` must
come back exactly so; `2>` and `2<` are a second connection, `< closed` means that the server closes. A line that goes
on is indented. Frames are hexadecimal, with what they hold behind `#`, which is held against the bytes.

After a change that is meant: `python -m tests.wire.test_protocol_examples` writes the answers anew. Then read the diff.
"""

import asyncio
import http.client
import re
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.server.auth.settings import AuthSettings
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener
from stoker.server.server import Server
from stoker.testing import FakeClock

PAGE = Path(__file__).parent.parent.parent / "docs" / "protocol.md"
BLOCK = re.compile(r"^```wire (?P<kind>[a-z-]+)(?P<auth> auth)?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"(?P<peer>2?)(?P<way>[<>]) (?P<text>.*)")
TOKEN = "let-me-in"
"""Of the server behind blocks that say `auth`."""
CLOSED = "closed"
WIDTH = 112


class StandingClock(FakeClock):
    """Time stands still: whoever waits is woken by what others do, and by nothing else."""

    async def wait_async(self, signal: asyncio.Event, until_ms: int) -> None:
        await signal.wait()


class Step(NamedTuple):
    """One message: who sends it, and what it says, with the lines of its comment."""

    peer: str
    is_sent: bool
    text: str
    holds: str


class Story(NamedTuple):
    kind: str
    auth: bool
    line: int
    steps: list[Step]
    span: tuple[int, int]


# --- reading the page --------------------------------------------------------------------------------


def stories(page: str) -> Iterator[Story]:
    for found in BLOCK.finditer(page):
        line = page.count("\n", 0, found.start()) + 1
        yield Story(found["kind"], bool(found["auth"]), line, steps_of(found["text"]), found.span("text"))


def steps_of(block: str) -> list[Step]:
    found: list[Step] = []
    for line in block.splitlines():
        step = STEP.fullmatch(line)
        if step is not None:
            found.append(Step(step["peer"], step["way"] == ">", step["text"], ""))
        elif line.startswith("#"):
            found[-1] = found[-1]._replace(holds=found[-1].holds + line[2:])
        else:
            assert line.startswith("  "), f"neither a message nor the rest of one: {line!r}"
            found[-1] = found[-1]._replace(text=found[-1].text + line[2:])
    return found


def bytes_of(text: str, kind: str) -> bytes:
    """What stands in a line of the page, as it goes over the wire."""
    if kind == "lines":
        return text.encode() + b"\n"
    if kind == "msgpack":
        return bytes.fromhex(text)
    length, _, body = text.partition(" ")
    return bytes.fromhex(length) + body.encode()


def text_of(message: bytes, kind: str) -> str:
    if kind == "lines":
        return message.decode().removesuffix("\n")
    return message.hex() if kind == "msgpack" else f"{message[:4].hex()} {message[4:].decode()}"


def held_in(frame: bytes) -> str:
    """A MessagePack frame for people; bytes are shown as base64. Nothing of a length without its frame."""
    if len(frame) <= 4:
        return ""
    return msgspec.json.encode(msgspec.msgpack.decode(frame[4:])).decode()


# --- replaying ---------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(auth: bool) -> AsyncIterator[dict[str, int]]:
    """The ports of a new server."""
    broker = LocalBroker(LocalSettings(shards=1), StandingClock())
    config = ServerConfig(
        tcp=TcpListener(listen="127.0.0.1:0"),
        http=HttpListener(listen="127.0.0.1:0"),
        grpc=GrpcListener(listen="off"),
        auth=AuthSettings(tokens=(TOKEN,)) if auth else AuthSettings(),
    )
    server = Server(config, broker)
    lines = await server.start()
    try:
        yield {line.split()[0]: int(line.rpartition(":")[2]) for line in lines}
    finally:
        await server.close()
        broker.close()


async def replay(story: Story) -> list[str]:
    """What really comes back, for each step that expects something."""
    async with serving(story.auth) as ports, asyncio.timeout(60):
        if story.kind == "http":
            return await asyncio.to_thread(visit, story, ports["http"])
        return await talk(story, ports["tcp"])


async def talk(story: Story, port: int) -> list[str]:
    peers: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
    found: list[str] = []
    for step in story.steps:
        if step.peer not in peers:
            peers[step.peer] = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = peers[step.peer]
        if step.is_sent:
            writer.write(bytes_of(step.text, story.kind))
        elif step.text == CLOSED:
            found.append(CLOSED if not await reader.read() else "more")
        else:
            found.append(text_of(await message_from(reader, story.kind), story.kind))
    for reader, writer in peers.values():
        if not writer.is_closing():
            writer.write_eof()
        found += [f"and then {rest!r}" for rest in [await reader.read()] if rest]
        writer.close()
    return found


async def message_from(reader: asyncio.StreamReader, kind: str) -> bytes:
    if kind == "lines":
        return await reader.readline()
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack(">I", head)[0])


def visit(story: Story, port: int) -> list[str]:
    """HTTP: `METHOD PATH BODY` is sent, `STATUS BODY` comes back."""
    found: list[str] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for step in story.steps:
        if step.is_sent:
            method, path, body = (*step.text.split(" ", 2), "")[:3]
            headers = {"Authorization": f"Bearer {TOKEN}"} if story.auth else {}
            connection.request(method, path, body.encode() or None, headers)
            response = connection.getresponse()
            found.append(f"{response.status} {response.read().decode()}")
    connection.close()
    return found


STORIES = list(stories(PAGE.read_text()))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: f"line-{story.line}-{story.kind}")
def test_an_example_of_the_protocol_is_what_really_happens(story: Story):
    expected = [step.text for step in story.steps if not step.is_sent]
    assert asyncio.run(replay(story)) == expected, "if that is meant: python -m tests.wire.test_protocol_examples"


@pytest.mark.parametrize("story", [story for story in STORIES if story.kind == "msgpack"], ids=lambda s: str(s.line))
def test_what_a_frame_holds_is_written_beside_it(story: Story):
    frames = [(bytes_of(step.text, story.kind), step.holds) for step in story.steps if step.text != CLOSED]
    for frame, holds in frames:
        assert holds == held_in(frame)
        assert not holds or struct.unpack(">I", frame[:4])[0] == len(frame) - 4


def test_every_framing_and_both_dialects_have_examples():
    assert {story.kind for story in STORIES} == {"lines", "msgpack", "json-frames", "http"}
    text = "".join(step.text + step.holds for story in STORIES for step in story.steps if step.is_sent)
    for cmd in ("PUSH", "PULL", "ACK", "AUTH", "SUBSCRIBE", "push_batch", "hello", "give_up", "subscribe"):
        assert f'"cmd":"{cmd}"' in text


def test_a_wrong_example_would_be_noticed():
    story = next(iter(stories('```wire lines\n> {"cmd":"PING"}\n< {"ok":true,\n  "pong":true}\n```\n')))
    assert [step.text for step in story.steps] == ['{"cmd":"PING"}', '{"ok":true,"pong":true}']
    assert asyncio.run(replay(story)) != [story.steps[1].text]


# --- writing the page --------------------------------------------------------------------------------


def wrapped(text: str, first: str, rest: str) -> str:
    """Lines that are not too long: JSON is cut behind commas, the digits of frames anywhere."""
    lines, start = [], first
    while len(start + text) > WIDTH:
        room = WIDTH - len(start)
        commas = [found.end() for found in re.finditer(r",(?! )", text)] or [room]
        cut = max([at for at in commas if at <= room], default=commas[0])
        if cut == len(text) or ("," in text and text[cut - 1] != ","):
            break
        lines.append(start + text[:cut])
        text, start = text[cut:], rest
    return "\n".join([*lines, start + text])


def written(story: Story) -> str:
    answers = iter(asyncio.run(replay(story)))
    lines = []
    for step in story.steps:
        text = step.text if step.is_sent else next(answers)
        lines.append(wrapped(text, f"{step.peer}{'>' if step.is_sent else '<'} ", "  "))
        if story.kind == "msgpack" and text != CLOSED and len(text) > 8:
            lines.append(wrapped(held_in(bytes_of(text, story.kind)), "# ", "# "))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text()
    for story in reversed(list(stories(page))):
        start, end = story.span
        page = page[:start] + written(story) + page[end:]
    PAGE.write_text(page)
