"""Many jobs in one request, one per line: `POST /queues/{queue}/jobs/bulk` with newline-delimited JSON.

    ?lines=data   each line is a job's payload (the default); options for all of them are in the query
    ?lines=jobs   each line is {"data": ..., and its own options}

Lines are pushed in batches while the rest is still arriving, and only one batch is held at a time. The response is a
summary; with `Accept: application/x-ndjson` it is a line for each finished batch and then the summary. A refused line
is named with its number; all others are pushed. With `request_key`, sending the same lines again makes no second job:
batches then end after a fixed number of lines, however they arrive.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import TABLE
from stoker.model.errors import InvalidRequest, StokerError
from stoker.model.options import Options
from stoker.model.replies import Level
from stoker.server.auth.identity import Identity
from stoker.server.http import responses
from stoker.server.http.request import ClientLeft, HttpRequest, convert
from stoker.server.http.responses import TooLarge, TooSlow
from stoker.server.http.rest import refuse
from stoker.wire.flashq.answers import runs_of
from stoker.wire.flashq.decoding import MISFITS
from stoker.wire.flashq.option_mapping import options_of, options_of_all
from stoker.wire.flashq.payloads import stored_as
from stoker.wire.flashq.requests import JobItem, JobOptions
from stoker.wire.flashq.spelling import meant
from stoker.wire.native import decode_error_text

PATH = "/queues/{queue}/jobs/bulk"
PIECE_BYTES = 1024 * 1024
"""Lines are cut and pushed when this much has come, or earlier if nothing more comes for a moment."""
MOMENT_S = 0.05
REFUSALS_TOLD = 1_000
"""Refused lines that are listed; of more, only the number is given."""

_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value = msgspec.json.Decoder(msgspec.Raw).decode
_item = msgspec.json.Decoder(JobItem).decode
_KINDS = {field.name: field.type for field in msgspec.structs.fields(JobOptions)}

Refusals = dict[int, r.Refusal]
"""By line number, counted from 0."""


class Wishes(msgspec.Struct):
    """The options in the query, for all lines."""

    lines: str
    options: JobOptions
    durability: Level | None
    request_key: str | None


class Tally(msgspec.Struct):
    """The progress so far."""

    lines: int = 0
    created: int = 0
    duplicates: int = 0
    refused: int = 0
    batches: int = 0
    level: Level = "memory"
    refusals: list[dict[str, Any]] = []

    def refuse(self, line: int, refusal: r.Refusal) -> None:
        self.refused += 1
        if len(self.refusals) < REFUSALS_TOLD:
            self.refusals.append({"line": line, "code": refusal.code, "error": refusal.message})


async def push_lines(http_request: HttpRequest) -> None:
    """The request handler."""
    http_request.check_origin()
    identity = http_request.identify()
    wishes = wishes_of(http_request)
    http_request.admit(identity, TABLE[c.PushBatch].permission)
    work = BulkPush(http_request, identity, wishes)
    streaming = responses.NDJSON in http_request.headers.get(b"accept", b"")
    try:
        async for lines in batches(http_request, wishes):
            line = await work.push(lines)
            if streaming:
                await work.tell(line)
    except StokerError as error:
        await work.fail(error)
        return
    await work.finish()


class BulkPush:
    """One bulk push under way."""

    def __init__(self, http_request: HttpRequest, identity: Identity, wishes: Wishes) -> None:
        self._http_request, self._identity, self._wishes = http_request, identity, wishes
        self._queue = http_request.parameters["queue"]
        self._options = options_of(wishes.options, "json")
        self._begun = False
        self.tally = Tally()

    async def push(self, lines: list[bytes]) -> dict[str, Any]:
        """Push a batch. Returns its line of the response."""
        tally, first = self.tally, self.tally.lines
        refused: Refusals = {}
        places: list[int] | None
        if self._wishes.lines == "jobs":
            payloads, options, each, places = self._jobs(lines, first, refused)
        else:
            payloads, places = valid_lines(lines, first, refused)
            options, each = self._options, None
        reply = r.PushedBatch([])
        if payloads:
            reply = await self._carry_out(payloads, options, each)
        for number, refusal in reply.refused.items():
            refused[first + (places[number] if places is not None else number)] = refusal
        for line in sorted(refused):
            tally.refuse(line, refused[line])
        tally.lines += len(lines)
        tally.created += reply.created
        tally.duplicates += len(reply.duplicates)
        tally.batches += 1
        tally.level = reply.level
        return {"line": first, "lines": len(lines), "created": reply.created, "ids": runs_of(reply.ids)}

    async def _carry_out(self, payloads: list[bytes], options: Options, each: list[Options] | None) -> r.PushedBatch:
        wishes = self._wishes
        key = None if wishes.request_key is None else f"{wishes.request_key}/{self.tally.batches}"
        command = c.PushBatch(self._queue, payloads, options, each, request_key=key, durability=wishes.durability)
        tenant = self._http_request.admit(self._identity, TABLE[c.PushBatch].permission, command)
        reply: r.PushedBatch = await self._http_request.carry_out(tenant, command)
        return reply

    def _jobs(
        self, lines: list[bytes], first: int, refused: Refusals
    ) -> tuple[list[bytes], Options, list[Options] | None, list[int]]:
        items: list[JobItem] = []
        payloads: list[bytes] = []
        places: list[int] = []
        for number, line in enumerate(lines):
            try:
                item = job_of(line)
                payloads.append(stored_as(item.data, "json", item.codec))
            except (*MISFITS, InvalidRequest) as error:
                refused[first + number] = r.Refusal("invalid", f"invalid line: {decode_error_text(error)}")
            else:
                items.append(item)
                places.append(number)
        options, each = options_of_all(items, "json") if items else (self._options, None)
        return payloads, options, each, places

    # --- the answer ----------------------------------------------------------------------------------

    async def tell(self, line: dict[str, Any]) -> None:
        """Send a line of a streamed response."""
        if not self._begun:
            self._begun = True
            headers = [(b"content-type", responses.NDJSON), *responses.GUARDS]
            await self._http_request.send({"type": "http.response.start", "status": 200, "headers": headers})
        body = responses.encode_json(line) + b"\n"
        await self._http_request.send({"type": "http.response.body", "body": body, "more_body": True})

    async def finish(self) -> None:
        tally = self.tally
        data = msgspec.to_builtins(tally)
        summary = {"ok": True, "success": not tally.refused, "data": data}
        if self._begun:
            await self.tell(summary)
            await self._http_request.send({"type": "http.response.body", "body": b""})
        else:
            await responses.send(self._http_request.send, 200, responses.encode_json(summary))

    async def fail(self, error: StokerError) -> None:
        """Report the error, and what was pushed before it."""
        pushed = msgspec.to_builtins(self.tally)
        status = responses.status_of(error)
        problem = {"ok": False, "error": error.message, "code": error.code, "data": pushed}
        if self._begun:
            await self.tell(problem)
            await self._http_request.send({"type": "http.response.body", "body": b""})
        elif self.tally.lines:
            headers = responses.extra_headers(error, status)
            await responses.send(self._http_request.send, status, responses.encode_json(problem), headers=headers)
        else:
            await refuse(self._http_request, error)


# --- lines -------------------------------------------------------------------------------------------


async def batches(http_request: HttpRequest, wishes: Wishes) -> AsyncIterator[list[bytes]]:
    """The lines of a body in lists of at most a batch."""
    most = http_request.service.config.limits.batch_jobs_max
    whole = wishes.request_key is not None
    waiting: list[bytes] = []
    async for block in blocks(http_request):
        lines = lines_of(block)
        waiting = waiting + lines if waiting else lines
        while len(waiting) >= most:
            yield waiting[:most]
            waiting = waiting[most:]
        if waiting and not whole:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def lines_of(block: bytes) -> list[bytes]:
    """The non-empty lines."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    lines = block.split(b"\n")
    return lines if b"" not in lines else [line for line in lines if line]


async def blocks(http_request: HttpRequest) -> AsyncIterator[bytes]:
    """The body in pieces that end with a line: as much as has come, up to a megabyte."""
    limits = http_request.service.config.server
    left: list[bytes] = []
    """What has come since the last complete line."""
    size = 0
    more = True
    while more:
        piece, more = await next_piece(http_request, MOMENT_S if size else limits.frame_s, bool(size))
        if piece is not None:
            left.append(piece)
            size += len(piece)
        if more and piece is not None and size < PIECE_BYTES:
            continue
        got = left[0] if len(left) == 1 else b"".join(left)
        cut = got.rfind(b"\n") if more else len(got)
        if cut > 0:
            yield got[:cut]
        rest = got[cut + 1 :]
        if len(rest) > limits.http_line_bytes_max:
            raise TooLarge(f"a line has more than {limits.http_line_bytes_max} bytes, which is the limit")
        left, size = ([rest], len(rest)) if rest else ([], 0)
        if more and piece is None and rest:
            piece, more = await next_piece(http_request, limits.frame_s, False)
            assert piece is not None
            left.append(piece)
            size += len(piece)


async def next_piece(http_request: HttpRequest, wait_s: float, may_pass: bool) -> tuple[bytes | None, bool]:
    """The next piece, and whether there is more; None if nothing comes in time and `may_pass` allows that."""
    try:
        async with asyncio.timeout(wait_s):
            message = await http_request.receive()
    except TimeoutError:
        if may_pass:
            return None, True
        raise TooSlow("timeout: the request was not complete, and nothing more came") from None
    if message["type"] != "http.request":
        raise ClientLeft
    return message["body"], bool(message.get("more_body"))


def valid_lines(lines: list[bytes], first: int, refused: Refusals) -> tuple[list[bytes], list[int] | None]:
    """The lines that are JSON, and their positions if some are not.

    All are checked at once: put between brackets they are one array, which a decoder checks and cuts in one go (0.1 us
    a line). Its items are the lines if they agree in number and length.
    """
    joined = b",".join(lines)
    try:
        if not joined.isascii():
            str(joined, "utf-8")
        found = _array(b"[%b]" % joined)
        if len(found) == len(lines) and list(map(len, map(bytes, found))) == list(map(len, lines)):
            return lines, None
    except MISFITS:
        pass
    return _one_by_one(lines, first, refused)


def _one_by_one(lines: list[bytes], first: int, refused: Refusals) -> tuple[list[bytes], list[int]]:
    payloads: list[bytes] = []
    places: list[int] = []
    for number, line in enumerate(lines):
        try:
            value = bytes(_value(line))
            if not value.isascii():
                str(value, "utf-8")
        except MISFITS as error:
            refused[first + number] = r.Refusal("invalid", f"invalid line: {decode_error_text(error)}")
        else:
            payloads.append(value)
            places.append(number)
    return payloads, places


def job_of(line: bytes) -> JobItem:
    if not line.isascii():
        str(line, "utf-8")
    try:
        return _item(line)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        spelt = {(meant(name, JobItem) or (name,))[0]: value for name, value in fields.items()}
        return _item(msgspec.json.encode(spelt))


def wishes_of(http_request: HttpRequest) -> Wishes:
    query = http_request.query()
    lines = query.pop("lines", "data")
    if lines not in ("data", "jobs"):
        raise InvalidRequest("invalid parameter lines: expected data or jobs")
    durability: Any = query.pop("durability", None)
    if durability is not None:
        durability = convert(durability, Level, "durability")
    key = query.pop("request_key", None)
    fields: dict[str, Any] = {}
    for name, text in query.items():
        meaning = meant(name, JobOptions)
        if meaning is None:
            raise InvalidRequest(f"invalid parameter {name[:40]!r}: it is not an option of a job")
        kind = _KINDS[meaning[0]]
        many = "tuple[" in str(kind)
        fields[meaning[0]] = convert(text.split(","), kind, name) if many else convert(text, kind, name)
    if lines == "data" and http_request.trace is not None:
        fields.setdefault("trace", http_request.trace)
    if fields and lines == "jobs":
        raise InvalidRequest("invalid parameters: with lines=jobs, put the options into the lines")
    return Wishes(lines, convert(fields, JobOptions, "options"), durability, key)
