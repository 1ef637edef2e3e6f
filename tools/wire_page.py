"""Makes the reference of the wire: every command of both dialects, from the server's own tables.

The fields of a command are those of its type. The fields of flashQ's answers are read from the functions that make
them, and shown by executing each command once against a queue in memory, so the page cannot be wrong.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.model import commands, options, replies
from stoker.model.command_table import TABLE
from stoker.model.errors import StokerError
from stoker.model.steps import carry_out
from stoker.server.http.other_routes import OTHERS
from stoker.server.http.routes import ROUTES
from stoker.server.session import Session
from stoker.server.webhooks import circuit
from stoker.server.webhooks import commands as hooks
from stoker.server.webhooks.hooks import HookRequest, HookView, Status
from stoker.testing import FakeClock
from stoker.wire import flashq, native, native_commands
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import Picks
from tools.make_docs import Class, Field, aliases_of, classes_of, code, field_table, joined, page, reply_classes, shown
from tools.make_docs import table as markdown

AGAIN = {
    "always": "may be sent again",
    "keyed": "may be sent again with a key",
    "never": "must not be sent again after a lost answer",
}
KEYS = frozenset(key for row in TABLE.values() for key in row.keys)
"""What makes a second sending of a command harmless."""
ENVELOPE = frozenset(("ok", "success"))


def wire_page() -> str:
    return page(
        "The wire",
        "wire/native_commands.py and src/stoker/wire/flashq/rows.py",
        "Every command that a server takes, in both dialects; [protocol.md](../protocol.md) says how they are sent."
        " Times are milliseconds since the epoch, durations milliseconds. A field without a default is required.",
        *native_blocks(),
        *flashq_blocks(),
        *http_blocks(),
    )


# --- Stoker's own dialect ----------------------------------------------------------------------------


def native_blocks() -> Iterator[str]:
    asked, answered = classes_of(commands), reply_classes()
    yield "## Stoker's own dialect"
    yield (
        "`{cmd, reqId?, tenant?, body}` is answered by `{ok, reqId?, body}`. Bytes are `bin` in MessagePack and base64"
        " in JSON; an array of ids may be a range `[-1, start, stop, step]`."
    )
    rows = [
        [f"[`{row.name}`](#{row.name})", row.permission, told_again(row.again, row.keys), joined(row.command.__doc__)]
        for row in native_commands.ROWS.values()
    ]
    yield markdown("Command, Needs, After a lost answer, What it does", rows)
    for row in native_commands.ROWS.values():
        yield from native_command(row, asked[row.command.__name__], answered[row.reply.__name__])
    yield from of_the_connection()
    yield "### Values"
    yield (
        "The types in bodies and replies. Options and policies are in [options.md](options.md), events in"
        " [events.md](events.md), states in [states.md](../states.md)."
    )
    for found in [asked["Sending"], asked["KvEntry"], *answered.values()]:
        if found.name != "DeliveredJob":  # made by Python's client from a delivery
            yield f"#### {found.name}"
            yield f"{found.meaning}\n\n{typed(found.fields)}".strip()


def native_command(row: native_commands.CommandName, asked: Class, answer: Class) -> Iterator[str]:
    yield f"### {row.name}"
    yield asked.meaning
    yield typed(asked.fields) or "No fields."
    names = words(field.name for field in answer.fields)
    yield f"Answers with [{answer.name}](#{answer.name.lower()}) ({names})."
    yield f"Needs `{row.permission}`; {told_again(row.again, row.keys)}."


def of_the_connection() -> Iterator[str]:
    yield "### Of the connection and of the server"
    structs: dict[str, tuple[type, str]] = {
        "hello": (native.NativeHello, f"Describe the server. Answers with {words(answer_fields(Session.hello))}."),
        "give_up": (
            native.GivenUp,
            "Stop waiting for a request of this connection. Answers with `count`: 0 if it was answered.",
        ),
        "subscribe": (
            native.Wish,
            "Events as they happen; needs `read`. Answers with `subscriptions` and `after`, where each shard starts.",
        ),
        "unsubscribe": (hooks.Nothing, "End the subscriptions of a queue (`queue`), or all. Answers with `count`."),
        "set_webhook": (HookRequest, "Have events posted to a URL; needs `admin`. Answers with the hook."),
        "list_webhooks": (hooks.Nothing, "Needs `admin`. Answers with `webhooks`."),
        "delete_webhook": (hooks.Named, "Needs `admin`. Answers with `count`."),
        "test_webhook": (
            hooks.Named,
            "Post a test event at once; needs `admin`. Answers with `ok`, `status`, `error`.",
        ),
    }
    for name, (kind, meaning) in structs.items():
        yield f"#### {name}"
        yield meaning
        yield typed(fields_of(kind))
    for view in (HookView, Status):
        yield f"#### {view.__name__}"
        yield typed(fields_of(view))


def told_again(again: str, keys: Sequence[str]) -> str:
    return AGAIN[again].replace("a key", " or ".join(f"`{key}`" for key in keys))


def fields_of(kind: type) -> list[Field]:
    return classes_of(inspect.getmodule(kind))[kind.__name__].fields


def typed(fields: list[Field]) -> str:
    return field_table([in_json(field) for field in fields])


def in_json(field: Field) -> Field:
    meaning = re.sub(r"\bNone\b", "`null`", field.meaning)
    return field._replace(kind=plain(field.kind), default=as_json(field.default), meaning=meaning)


WORDS = aliases_of("\n".join(map(inspect.getsource, (options, replies, circuit))))
"""Names of choices: the words themselves are sent."""
LITERAL = re.compile(r"Literal\[([^\]]*)\]")


def plain(kind: str) -> str:
    """A Python type for readers of other languages."""
    kind = re.sub(r"\b(?:r|q|model|msgspec)\.", "", kind).replace("Sequence[", "list[").replace("Mapping[", "map[")
    for alias, meaning in WORDS.items():
        kind = re.sub(rf"\b{alias}\b", meaning, kind)
    kind = LITERAL.sub(lambda found: found[1].replace(", ", " | "), kind)
    kind = re.sub(r"tuple\[([^\[\]]*), \.\.\.\]", r"list[\1]", kind)
    kind = re.sub(r"tuple\[tuple\[int, int\], \.\.\.\]", "list[[int, int]]", kind)
    return re.sub(r"\bRaw\b", "any value", kind).replace("None", "null").replace("dict[", "map[").replace("'", '"')


def as_json(default: str) -> str:
    if default.startswith("<msgspec.Raw"):
        return "null"
    word = {"None": "null", "True": "true", "False": "false", "()": "[]", "mappingproxy({})": "{}"}.get(
        default, default
    )
    if word.endswith("()"):
        return "{}"
    return word.replace("'", '"').removeprefix("b")


# --- flashQ's dialect --------------------------------------------------------------------------------


def flashq_blocks() -> Iterator[str]:
    written, life = classes_of(q), examples()
    yield "## flashQ's dialect"
    yield (
        "`{cmd, reqId?, tenant?, ...fields}` is answered by `{ok, success, reqId?, ...}`, or by `{ok: false, error,"
        " code}`. Fields may be written in camelCase, `null` means left out, and unknown fields are ignored. *Any"
        " value* is JSON or MessagePack, as the connection speaks. The examples are for a connection that has"
        " sent `HELLO`: others get every field of a job."
    )
    yield "Second names: " + ", ".join(f"`{other}` for `{name}`" for other, name in q.ALSO.items()) + "."
    yield "### Options of a job"
    yield (
        "They are fields of `PUSH` and `FLOW` beside the others. A `JobItem` is `data` and these, a `FlowChild` is"
        " `data`, `queue` (the parent's) and these, a `KvEntry` is `key`, `value` and `ttl`. A `PlainItem` is `data`"
        " alone. A `WorkflowStep` is `queue`, `jobs` (each a `PlainItem`), `after` (keys or numbers of steps, or"
        " `{step, on_failure}`), `key`, `parent`, `open` and these options, which apply to all of its jobs."
    )
    yield typed(written["JobOptions"].fields)
    for row in flashq.ROWS.values():
        yield from flashq_command(row, written, life)


def flashq_command(
    row: flashq.DialectRow, written: dict[str, Class], life: dict[str, tuple[Any, Any]]
) -> Iterator[str]:
    yield f"### {row.name}"
    also = f" Also called {words(row.aliases)}." if row.aliases else ""
    yield re.sub(r"\bNone\b", "`null`", row.summary) + also
    yield typed(derived_fields(row) if row.fields else own_fields(row.request, written))
    if issubclass(row.request, q.JobOptions):
        yield "And the [options of a job](#options-of-a-job)."
    yield f"Answers with {words(answers_of(row)) or '`ok` alone'}."
    if row.name in life:
        asked, answer = (msgspec.json.encode(part).decode() for part in life[row.name])
        yield f"```json\n{asked}\n{answer}\n```"
    needs = f"Needs `{row.permission}`" if row.permission else "Needs no permission"
    routes = [f"`{route.method} {route.path}`" for route in ROUTES if flashq.BY_NAME[route.cmd] is row]
    again = told_again(row.again, [key for key in row.request.__struct_fields__ if key in KEYS])
    yield f"{needs}; {again}." + (f" REST: {', '.join(routes)}." if routes else "")


def own_fields(kind: type, written: dict[str, Class]) -> list[Field]:
    """The fields of a request besides those of all, and besides the options of a job."""
    found: list[Field] = []
    for above in reversed(kind.__mro__):
        if above.__name__ in written and above not in (q.FlashqRequest, q.JobRequest, q.JobOptions):
            found += written[above.__name__].fields
    return found


def derived_fields(row: flashq.DialectRow) -> list[Field]:
    """The fields of a request that is a command under other names. What they mean stands with the command."""
    meant = {field.name: field.meaning for field in fields_of(row.command)} if row.command is not None else {}
    return [
        Field(
            name,
            type_text(one.type),
            "" if one.default is msgspec.NODEFAULT else shown(one.default),
            one.meaning or meant.get(one.to, ""),
        )
        for name, one in row.fields.items()
    ]


def type_text(hint: Any) -> str:
    """A type as it is written."""
    inner = get_args(hint)
    if hint is NoneType:
        return "None"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return " | ".join(repr(str(one)) for one in hint)
    if get_origin(hint) is Literal:
        return " | ".join(map(repr, inner))
    if inner and get_origin(hint) is not list:
        return " | ".join(map(type_text, inner))
    return f"list[{type_text(inner[0])}]" if inner else str(hint.__name__)


def words(names: Any) -> str:
    return ", ".join(code(name) for name in names)


def answers_of(row: flashq.DialectRow) -> list[str]:
    by_the_server: dict[str, Callable[..., Any]] = {
        "HELLO": Session.hello,
        "SUBSCRIBE": Session.subscribe,
        "UNSUBSCRIBE": Session.unsubscribe,
    }
    if isinstance(row.answer, Picks):
        return list(row.answer.names)
    function = row.answer or row.steps or by_the_server.get(row.name)
    return answer_fields(function) if function is not None else []


def answer_fields(function: Callable[..., Any]) -> list[str]:
    """Every field that a function may put into its answer."""
    return [name for name in dict.fromkeys(Answers(function).found()) if name not in ENVELOPE]


class Answers:
    """The code of one function that makes an answer, or a part of one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._names = inspect.getmodule(function).__dict__
        (self._tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body

    def found(self) -> Iterator[str]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "done":
                yield from self._given(node.keywords)
            elif isinstance(node, ast.Return) and node.value is not None:
                yield from self._returned(node.value)
            elif isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Dict):
                keys = list(self._keys(node.value))
                yield from keys if "ok" in keys else ()
            if isinstance(node, ast.Assign):
                yield from (
                    str(target.slice.value)
                    for target in node.targets
                    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant)
                )

    def _returned(self, value: ast.expr) -> Iterator[str]:
        if isinstance(value, ast.YieldFrom):
            value = value.value
        if isinstance(value, ast.Dict):
            yield from self._keys(value)
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id != "done":
            yield from Answers(self._names[value.func.id]).found()

    def _given(self, keywords: list[ast.keyword]) -> Iterator[str]:
        for keyword in keywords:
            yield from [keyword.arg] if keyword.arg is not None else self._spread(keyword.value)

    def _keys(self, node: ast.Dict) -> Iterator[str]:
        for key, value in zip(node.keys, node.values, strict=True):
            yield from [str(ast.literal_eval(key))] if key is not None else self._spread(value)

    def _spread(self, node: ast.expr) -> Iterator[str]:
        """The fields that `**` brings."""
        if isinstance(node, ast.Dict):
            yield from self._keys(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "msgspec.to_builtins":
            yield from self._struct_of(ast.unparse(node.args[0]))
        elif isinstance(node, ast.Call):
            yield from self._returned(node)
        elif isinstance(node, ast.Name):
            for other in ast.walk(self._tree):
                if isinstance(other, ast.AnnAssign | ast.Assign) and other.value is not None:
                    targets = [other.target] if isinstance(other, ast.AnnAssign) else other.targets
                    if ast.unparse(targets[0]) == node.id and isinstance(other.value, ast.Dict | ast.Call):
                        yield from self._spread(other.value)

    def _struct_of(self, name: str) -> Iterator[str]:
        """The fields of a reply, found by its annotation."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None and named(node) == name:
                kind = ast.unparse(node.annotation).removeprefix("r.")
                yield from getattr(replies, kind).__struct_fields__


def named(node: ast.AnnAssign | ast.arg) -> str:
    return node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)


# --- one of each, carried out ------------------------------------------------------------------------

LIFE: list[dict[str, Any]] = [
    {"cmd": "PUSH", "queue": "mail", "data": {"to": "ada"}, "job_id": "m-1", "tags": ["vip"]},
    {"cmd": "PUSHB", "queue": "mail", "jobs": [{"data": 1}, {"data": 2, "priority": "high"}]},
    {"cmd": "FLOW", "queue": "flow", "data": "parent", "children": [{"data": "a"}, {"data": "b"}]},
    {"cmd": "PULL", "queue": "mail", "worker": "w"},
    {"cmd": "PULLB", "queue": "mail", "count": 2, "timeout": 0},
    {"cmd": "PROGRESS", "id": 64, "progress": 40, "message": "half", "token": 1},
    {"cmd": "LOG", "id": 64, "message": "started", "token": 1},
    {"cmd": "PARTIAL", "id": 64, "data": "chunk", "token": 1},
    {"cmd": "HEARTBEAT", "id": 64, "token": 1},
    {"cmd": "GETPROGRESS", "id": 64},
    {"cmd": "GETLOGS", "id": 64},
    {"cmd": "GETPARTIALS", "id": 64},
    {"cmd": "ACK", "id": 64, "token": 1, "result": {"sent": True}},
    {"cmd": "FAIL", "id": 128, "token": 2, "error": "no route", "retry": False},
    {"cmd": "DLQ", "queue": "mail", "count": 1},
    {"cmd": "DLQSTATS", "queue": "mail"},
    {"cmd": "RETRYDLQ", "queue": "mail"},
    {"cmd": "PULLB", "queue": "mail", "count": 1, "timeout": 0},
    {"cmd": "RELEASE", "id": 128, "token": 3},
    {"cmd": "PULLB", "queue": "mail", "count": 1, "timeout": 0},
    {"cmd": "ACKB", "ids": [128, 64], "tokens": 4},
    {"cmd": "GETJOB", "id": 64},
    {"cmd": "GETSTATE", "id": 64},
    {"cmd": "GETRESULT", "id": 64},
    {"cmd": "GETJOBBYCUSTOMID", "job_id": "m-1"},
    {"cmd": "GETJOBSBATCH", "ids": [256, 6400]},
    {"cmd": "GETJOBS", "queue": "flow", "limit": 1},
    {"cmd": "GETJOBCOUNTS", "queue": "mail"},
    {"cmd": "COUNT", "queue": "mail"},
    {"cmd": "ISPAUSED", "queue": "mail"},
    {"cmd": "WAITJOB", "id": 64, "timeout": 0},
    {"cmd": "GETCHILDREN", "parent_id": 256},
    {"cmd": "WHY", "id": 256},
    {"cmd": "STORY", "id": 320},
    {"cmd": "LISTQUEUES"},
    {"cmd": "QUEUE", "queue": "flow"},
    {"cmd": "STATS"},
    {"cmd": "METRICS"},
    {"cmd": "CANCEL", "id": 256},
    {"cmd": "MOVETODELAYED", "id": 320, "delay": 60_000},
    {"cmd": "PROMOTE", "id": 320},
    {"cmd": "UPDATEJOB", "id": 320, "data": "c"},
    {"cmd": "CHANGEPRIORITY", "id": 320, "priority": 9},
    {"cmd": "DISCARD", "id": 320},
    {"cmd": "PAUSE", "queue": "flow"},
    {"cmd": "RESUME", "queue": "flow"},
    {"cmd": "RATELIMIT", "queue": "flow", "limit": 100},
    {"cmd": "RATELIMITCLEAR", "queue": "flow"},
    {"cmd": "SETCONCURRENCY", "queue": "flow", "limit": 4},
    {"cmd": "CLEARCONCURRENCY", "queue": "flow"},
    {"cmd": "SETPOLICY", "queue": "flow", "durability": "commit"},
    {"cmd": "DRAIN", "queue": "flow"},
    {"cmd": "CLEAN", "queue": "mail", "state": "completed"},
    {"cmd": "PURGEDLQ", "queue": "mail"},
    {"cmd": "OBLITERATE", "queue": "flow"},
    {"cmd": "CRON", "name": "digest", "queue": "mail", "schedule": "0 8 * * *", "zone": "Asia/Tokyo", "data": 1},
    {"cmd": "CRONGET", "name": "digest"},
    {"cmd": "CRONLIST"},
    {"cmd": "CRONPAUSE", "name": "digest"},
    {"cmd": "CRONRESUME", "name": "digest"},
    {"cmd": "CRONRUN", "name": "digest"},
    {"cmd": "CRONDELETE", "name": "digest"},
    {
        "cmd": "WORKFLOW",
        "name": "nightly",
        "steps": [
            {"key": "list", "queue": "pages", "jobs": [{"data": "index"}]},
            {"key": "fetch", "queue": "pages", "after": ["list"], "open": True},
            {
                "key": "report",
                "queue": "reports",
                "jobs": [{"data": None}],
                "after": [{"step": "fetch", "on_failure": "continue"}],
            },
        ],
    },
    {"cmd": "PULLB", "queue": "pages", "count": 1, "timeout": 0},
    {"cmd": "FILLSTEP", "id": 576, "token": 5, "step": "fetch", "jobs": [{"data": "a"}, {"data": "b"}]},
    {"cmd": "ACK", "id": 576, "token": 5, "result": ["a", "b"]},
    {"cmd": "GETINPUTS", "id": 704},
    {"cmd": "WORKFLOWLIST", "state": "running"},
    {"cmd": "WORKFLOWGET", "id": 512},
    {"cmd": "PULLB", "queue": "pages", "count": 1, "timeout": 0},
    {"cmd": "FAIL", "id": 704, "token": 6, "error": "no such page", "retry": False},
    {"cmd": "WORKFLOWRETRY", "id": 512},
    {"cmd": "WORKFLOWCANCEL", "id": 512},
    {"cmd": "KVSET", "key": "k", "value": {"a": 1}, "ttl": 60_000},
    {"cmd": "KVMSET", "entries": [{"key": "n", "value": 1}]},
    {"cmd": "KVGET", "key": "k"},
    {"cmd": "KVMGET", "keys": ["k", "missing"]},
    {"cmd": "KVEXISTS", "keys": ["k", "missing"]},
    {"cmd": "KVEXPIRE", "key": "k", "ttl": 1_000},
    {"cmd": "KVTTL", "key": "k"},
    {"cmd": "KVKEYS", "pattern": "*"},
    {"cmd": "KVINCR", "key": "n"},
    {"cmd": "KVDEL", "key": "k"},
    {"cmd": "PING"},
]


def examples() -> dict[str, tuple[Any, Any]]:
    """The first request of each command in the script above, and its answer."""
    broker = LocalBroker(LocalSettings(shards=1), FakeClock())
    found: dict[str, tuple[Any, Any]] = {}
    for request in LIFE:
        row = flashq.ROWS[request["cmd"]]
        answer = carried_out(broker, row, request)
        unknown = answer.keys() - ENVELOPE - set(answers_of(row))
        assert answer["ok"], (request, answer)
        assert not unknown, f"{row.name} answers with {unknown}, which was not found in its code"
        found.setdefault(row.name, (request, answer))
    broker.close()
    return found


def carried_out(broker: LocalBroker, row: flashq.DialectRow, request: dict[str, Any]) -> Any:
    context = flashq.RequestContext("json", hello=True, now=broker.now())
    frame = msgspec.json.encode(request)
    try:
        plan = row.plan(flashq.decode(frame, "json", row.name), context)
        answer = carry_out(plan, lambda command: broker.execute("default", command))
    except StokerError as error:
        answer = flashq.failure(error)
    return msgspec.json.decode(native.FORMATS["json"].encode(answer))


# --- HTTP --------------------------------------------------------------------------------------------


def http_blocks() -> Iterator[str]:
    yield "## REST"
    yield (
        "Fields come from the path, the query and a JSON body; the answer is `{ok, data, ...}`, where `data` is the"
        " named field of the command's answer, or all of it. `POST /queues/{queue}/pull` waits only if asked to."
    )
    rows = [[f"`{route.method} {route.path}`", code(route.cmd), code(route.select)] for route in ROUTES]
    yield markdown("Route, Command, `data` is", rows)
    yield "## Other paths"
    yield markdown("Path, Meaning", [[f"`{one.method} {one.path}`", one.summary] for one in OTHERS])
