"""Makes the reference pages of `docs/` from the code: model, app, configuration, command line, metrics, Spark.

Run it after editing `src/stoker/model`, `app`, `worker`, `settings.py`, `server/config`, `server/http/metrics.py` or
`cli`: `python tools/make_docs.py`. A test fails when a page is not up to date. The texts come only from the docstrings
there.
"""

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import click
import msgspec

from stoker import settings as python_settings
from stoker.cli import exit_codes
from stoker.cli.main import stoker
from stoker.model import (
    bulk,
    commands,
    errors,
    events,
    filters,
    histograms,
    history,
    limits,
    options,
    reasons,
    replies,
    schedules,
    states,
)
from stoker.server import config as settings
from stoker.server.config import keys, values
from stoker.server.config.tree import NOT_SETTINGS, ServerConfig
from stoker.server.http import metrics

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MODEL = ROOT / "src" / "stoker" / "model"


class Field(NamedTuple):
    """One line of a class: `name: kind = default`, and the docstring below it."""

    name: str
    kind: str
    default: str
    meaning: str


class Class(NamedTuple):
    """A class of a module, with the heading of its section."""

    name: str
    section: str
    meaning: str
    fields: list[Field]
    bases: str


# --- reading the code --------------------------------------------------------------------------------


def classes_of(module: Any) -> dict[str, Class]:
    """Classes in source order; a package is the files whose names it imports, each a section."""
    sources = sources_of(module)
    aliases = aliases_of("\n".join(sources))
    found: dict[str, Class] = {}
    for source in sources:
        tree = ast.parse(source)
        opening = (ast.get_docstring(tree) or "").partition(":")[0].lower() if len(sources) > 1 else ""
        sections = [
            (number, line.strip("#- "))
            for number, line in enumerate(source.splitlines(), 1)
            if line.startswith("# --- ")
        ]
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                section = next((title for number, title in reversed(sections) if number < node.lineno), opening)
                fields = list(fields_of(node.body, getattr(module, node.name), aliases))
                bases = ", ".join(map(ast.unparse, node.bases))
                found[node.name] = Class(node.name, section, joined(ast.get_docstring(node)), fields, bases)
    return found


def sources_of(module: Any) -> list[str]:
    """The source of a module, after those of the modules whose names it imports with `*`."""
    source = Path(module.__file__).read_text()
    taken = [
        node.module
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and node.module and node.names[0].name == "*"
    ]
    return [*(Path(str(import_module(name).__file__)).read_text() for name in taken), source]


def fields_of(body: list[ast.stmt], kind: type[Any], aliases: dict[str, str]) -> Iterator[Field]:
    for place, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            annotation = ast.unparse(node.annotation).strip("'")
            for alias, meaning in aliases.items():
                annotation = re.sub(rf"\b{alias}\b", meaning, annotation)
            yield Field(name, annotation, default_of(kind, name), docstring_at(body, place + 1))


def aliases_of(source: str) -> dict[str, str]:
    """Names of choices: `Jitter = Literal["none", "equal"]` reads better as the words themselves."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = ast.unparse(node.value)
            if value.startswith("Literal[") or " | " in value:
                found[node.targets[0].id] = value.removeprefix("Literal[").removesuffix("]").replace("', '", "' | '")
    return found


def docstring_at(body: list[ast.stmt], place: int) -> str:
    """The docstring right below a field."""
    node = body[place] if place < len(body) else None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return joined(node.value.value)
    return ""


def default_of(kind: type[Any], name: str) -> str:
    if not issubclass(kind, msgspec.Struct) or name not in kind.__struct_fields__:
        return ""
    # Not `msgspec.structs.fields`: it needs every type, even those that only type checkers import.
    missing = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    place = kind.__struct_fields__.index(name) - missing
    default = msgspec.NODEFAULT if place < 0 else kind.__struct_defaults__[place]
    if hasattr(default, "factory"):
        default = default.factory()
    return "" if default is msgspec.NODEFAULT else shown(default)


def shown(value: Any) -> str:
    if type(value) is int:
        return f"{value:_}"
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}()"
    if isinstance(value, re.Pattern):
        return str(value.pattern)
    return repr(value)


def joined(text: str | None) -> str:
    return " ".join((text or "").split())


def constants_of(module: Any) -> Iterator[Field]:
    """The module's constants that have a docstring."""
    body = ast.parse(Path(module.__file__).read_text()).body
    for place, node in enumerate(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            meaning = docstring_at(body, place + 1)
            if meaning:
                name = node.targets[0].id
                yield Field(name, "", shown(getattr(module, name)), meaning)


# --- writing Markdown --------------------------------------------------------------------------------


def page(title: str, source: str, *blocks: str) -> str:
    note = f"<!-- Made by tools/make_docs.py from src/stoker/{source}: edit there, then run the tool. -->"
    return "\n\n".join([note, f"# {title}", *(block for block in blocks if block)]) + "\n"


def table(heads: str, rows: list[list[str]]) -> str:
    names = heads.split(", ")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def field_table(fields: list[Field]) -> str:
    if not fields:
        return ""
    heads = "Field, Type, Default, Meaning"
    rows = [[code(field.name), code(field.kind), code(field.default), field.meaning] for field in fields]
    if not any(field.meaning for field in fields):  # the class docstring says it all
        heads, rows = heads.removesuffix(", Meaning"), [row[:-1] for row in rows]
    return table(heads, rows)


def opening(module: Any) -> str:
    """The first paragraph of a module's docstring."""
    return joined((module.__doc__ or "").partition("\n\n")[0])


# --- the pages ---------------------------------------------------------------------------------------


def states_page() -> str:
    ends = {states.NEW: "[*]", states.GONE: "[*]"}
    steps = [(old, new, why) for old, ways in states.TRANSITIONS.items() for new, why in ways.items()]
    diagram = [f"    {ends.get(old, old)} --> {ends.get(new, new)}: {why}" for old, new, why in steps]
    return page(
        "The states of a job",
        "model/states.py",
        "A job is in exactly one of these states, and moves between them only as shown below. Paused,"
        " limited or behind a busy group are not states but answers to *why is this job waiting?*",
        table(
            "Kind, States",
            [
                ["live", ", ".join(states.LIVE)],
                ["pending: live and not started", ", ".join(states.PENDING)],
                ["ended", ", ".join(states.ENDED)],
            ],
        ),
        "\n".join(["```mermaid", "stateDiagram-v2", *diagram, "```"]),
        table("From, To, When", [[code(old), code(new), why] for old, new, why in steps]),
        "## Reasons",
        "Why a delivery failed, or why a job did not complete: "
        + ", ".join(code(reason) for reason in reasons.Reason)
        + ".",
    )


def options_page() -> str:
    blocks = []
    # the most asked for first
    for found in sorted(classes_of(options).values(), key=lambda found: found.name != "Options"):
        blocks += [f"## {found.name}", found.meaning, field_table(found.fields)]
    intro = joined((options.__doc__ or "").partition("\n\n")[2])
    return page("Options", "model/options.py", opening(options), intro, *blocks)


def reply_classes() -> dict[str, Class]:
    """The types of replies, and of what commands and replies are made of."""
    modules = (replies, schedules, filters, histograms, history, bulk)
    return {name: one for module in modules for name, one in classes_of(module).items()}


def commands_page() -> str:
    answers = reply_classes()
    blocks: list[str] = []
    section = ""
    for found in classes_of(commands).values():
        reply = re.fullmatch(r"Command\[(?:r\.)?(\w+)\]", found.bases)
        if reply is None:
            continue
        if found.section != section:
            section = found.section
            blocks.append(f"## {section.capitalize()}")
        answer = answers[reply[1]]
        names = ", ".join(code(field.name) for field in answer.fields)
        told = f" {answer.meaning}" if answer.meaning else ""
        blocks += [f"### {found.name}", found.meaning, field_table(found.fields)]
        blocks.append(f"Answers with `{answer.name}` ({names}).{told}")
    for name in ("Schedule", "JobFilter"):
        blocks += [f"### {name}", answers[name].meaning, field_table(answers[name].fields)]
    return page("Commands", "model/commands.py", opening(commands), *blocks)


DRAWN = re.compile(r"^[ |`-]+(?P<name>[A-Z]\w+) {2,}(?P<rest>.+)$", re.MULTILINE)


def errors_page() -> str:
    """The meanings are in the drawn tree, beside the names."""
    beside = {found["name"]: found["rest"] for found in DRAWN.finditer(errors.__doc__ or "")}
    rows = []
    for code_name, kind in errors.BY_CODE.items():
        meaning = beside.get(kind.__name__, "").removeprefix(code_name).strip() or joined(kind.__doc__)
        parent = kind.__mro__[1].__name__
        rows.append([code(code_name), code(kind.__name__), code(parent), "yes" if kind.retryable else "no", meaning])
    closing = joined((errors.__doc__ or "").rpartition("\n\n")[2])
    return page("Errors", "model/errors.py", closing, table("Code, Error, Is a, Retry helps, Meaning", rows))


def limits_page() -> str:
    fields = classes_of(limits)["Limits"].fields
    return page(
        "Limits",
        "model/limits.py",
        joined(limits.__doc__),
        table("Limit, Default, Reason", [[code(field.name), code(field.default), field.meaning] for field in fields]),
        "## Fixed by a format",
        table("Constant, Value, Reason", [[code(f.name), code(f.default), f.meaning] for f in constants_of(limits)]),
    )


def events_page() -> str:
    event = classes_of(events)["Event"]
    durations = ", ".join(code(name) for name, value in vars(events.Event).items() if isinstance(value, property))
    return page(
        "Events",
        "model/events.py",
        joined(events.__doc__),
        "## Kinds",
        "\n".join(f"- `{kind}`" for kind in events.EventKind),
        "## Fields",
        event.meaning,
        field_table(event.fields),
        f"Computed from these: {durations}.",
    )


def configuration_page() -> str:
    blocks = ["## At the top", setting_table([place for place in keys.keys_of() if len(place) == 1])]
    for name, kind in keys.settings_in(ServerConfig, ()).items():
        section = values.struct_of(kind)
        if section is not None:
            places = [place for place in keys.keys_of() if place[0] == name]
            blocks += [f"## {name}", joined(section.__doc__), setting_table(places)]
            blocks += [block for place in places for block in listed_blocks(place)]
    return page(
        "Configuration",
        "server/config/tree.py",
        *(settings.__doc__ or "").strip().split("\n\n"),
        *blocks,
    )


def setting_table(places: list[tuple[str, ...]]) -> str:
    return table("Setting, Takes, Default, Meaning", [setting_row(place, owner_of(place)) for place in places])


def setting_row(place: tuple[str, ...], owner: Any) -> list[str]:
    field = next(each for each in msgspec.structs.fields(owner) if each.name == place[-1])
    written = classes_of(sys.modules[owner.__module__])[owner.__name__].fields
    meaning = next(each.meaning for each in written if each.name == place[-1])
    return [code(".".join(place)), kind_text(field.type, field.name), code(default_at(place, field)), meaning]


def listed_blocks(place: tuple[str, ...]) -> Iterator[str]:
    """The tables of a list of tables."""
    for member in values.members(keys.type_at(place)):
        listed = values.struct_of(get_args(member)[0]) if get_origin(member) in (tuple, list) else None
        if listed is not None:
            yield f"Each table of `[[{'.'.join(place)}]]`: {joined(listed.__doc__)}"
            rows = [setting_row((*place, field.name), listed) for field in msgspec.structs.fields(listed)]
            yield table("Setting, Takes, Default, Meaning", rows)


def settings_page() -> str:
    """The settings of `stoker.connect(url, settings=...)`."""
    blocks = []
    for kind in (
        python_settings.LocalSettings,
        python_settings.JournalSettings,
        python_settings.BackupSettings,
        python_settings.FilterSettings,
        python_settings.RemoteSettings,
        python_settings.RedisSettings,
    ):
        found = classes_of(sys.modules[kind.__module__])[kind.__name__]
        fields = [field for field in found.fields if f"journal.{field.name}" not in NOT_SETTINGS]
        blocks += [f"## {found.name}", found.meaning, field_table(fields)]
    told, *example, more = (python_settings.__doc__ or "").split("\n\n")
    shown_code = textwrap.dedent("\n\n".join(example))
    return page(
        "Settings in Python",
        "settings.py",
        joined(told),
        f"```python\n{shown_code}\n```",
        joined(more),
        *blocks,
        "`limits` has the fields of [limits](limits.md), `engine` those of `Settings` in [options](options.md).",
    )


def owner_of(place: tuple[str, ...]) -> Any:
    """The struct that has a setting."""
    kind = keys.type_at(place[:-1])
    return values.struct_of(kind) or values.named_structs_of(kind)


def default_at(place: tuple[str, ...], field: Any) -> str:
    value: Any = ServerConfig()
    for name in place:
        value = getattr(value, name, msgspec.NODEFAULT) if isinstance(value, msgspec.Struct) else msgspec.NODEFAULT
    if value is msgspec.NODEFAULT:  # a field of an optional section
        value = field.default
    if value is None or value is msgspec.NODEFAULT:
        return ""
    return f"{value:_}" if type(value) is int else keys.shown(value)


def kind_text(kind: Any, name: str) -> str:
    units = {"ms": "a time in ms", "s": "a time in s", "bytes": "a size in bytes", "": ""}
    words = []
    for member in values.members(kind):
        if get_origin(member) is Literal:
            words += [code(str(word)) for word in get_args(member)]
        elif member in (int, float):
            words.append(units[values.unit_of(name)] or ("a whole number" if member is int else "a number"))
        elif get_origin(member) in (tuple, list):
            words.append("a list of tables" if values.struct_of(get_args(member)[0]) else "a list of texts")
        elif member is not type(None):
            words.append({str: "text", bool: "`true` or `false`"}[member])
    return " or ".join(words)


def cli_page() -> str:
    context = click.Context(stoker, info_name="stoker", **stoker.context_settings)
    blocks = [joined_paragraphs(stoker.help), command_table(context)]
    for name in stoker.list_commands(context):
        blocks += command_blocks(stoker.get_command(context, name), context, name)
    codes = [[code(str(number)), meaning] for number, meaning in exit_codes.MEANINGS.items()]
    return page(
        "The command line",
        "cli",
        *blocks,
        "## Exit codes",
        "An error is one line on standard error, `error: message (code)`, with a code from [errors.md](errors.md), or"
        " `usage`, `bad_config`, `log_failed` (a server), `cannot_load` (an app), `bench` or `demo`.",
        table("Code, Meaning", codes),
    )


def command_blocks(command: Any, above: click.Context, name: str) -> list[str]:
    context = click.Context(command, info_name=name, parent=above)
    blocks = [f"{'##' if above.parent is None else '###'} {context.command_path}"]
    blocks += [joined_paragraphs(command.help), code(" ".join(context.get_usage().removeprefix("Usage: ").split()))]
    blocks += [command_table(context), example_block(command.epilog)]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            blocks += command_blocks(command.get_command(context, inner), context, inner)
    return blocks


def example_block(epilog: str | None) -> str:
    """The command lines at the end of a help text."""
    lines = [line.strip() for line in (epilog or "").splitlines() if line.startswith("  ")]
    return "\n".join(["```console", *(f"$ {line}" for line in lines), "```"]) if lines else ""


def command_table(context: click.Context) -> str:
    rows = []
    for option in context.command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None and "--help" not in option.opts:
            rows.append([code(record[0]), joined(record[1])])
    return table("Option, Meaning", rows) if rows else ""


def joined_paragraphs(text: str | None) -> str:
    return "\n\n".join(joined(paragraph) for paragraph in (text or "").split("\n\n"))


def metrics_page() -> str:
    rows = [[code(one.name), one.kind, ", ".join(map(code, one.labels)), one.meaning] for one in metrics.METRICS]
    return page(
        "Metrics",
        "server/http/metrics.py",
        "`GET /metrics` returns these in Prometheus' text format, or in OpenMetrics if that is asked for. They are"
        " about all tenants, so they need a token with `read` of the tenant `default`, or of any.",
        table("name, kind, labels, meaning", rows),
        "A server in several processes reports all of them, whichever is asked. All but `stoker_info` and those about"
        " jobs then also have a label `process`.",
        "`GET /metrics/history` has the most important ones as JSON, a point every five seconds, for the last 1,000"
        " points.",
    )


def wire_page() -> str:
    if str(ROOT) not in sys.path:  # run as a script
        sys.path.insert(0, str(ROOT))
    from tools import wire_page

    return wire_page.wire_page()


def app_page() -> str:
    if str(ROOT) not in sys.path:  # run as a script
        sys.path.insert(0, str(ROOT))
    from tools import app_page

    return app_page.app_page()


def spark_page() -> str:
    if str(ROOT) not in sys.path:  # run as a script
        sys.path.insert(0, str(ROOT))
    from tools import spark_page

    return spark_page.spark_page()


def pages() -> dict[Path, str]:
    reference = DOCS / "reference"
    return {
        DOCS / "states.md": states_page(),
        reference / "options.md": options_page(),
        reference / "commands.md": commands_page(),
        reference / "errors.md": errors_page(),
        reference / "limits.md": limits_page(),
        reference / "events.md": events_page(),
        reference / "configuration.md": configuration_page(),
        reference / "settings.md": settings_page(),
        reference / "cli.md": cli_page(),
        reference / "metrics.md": metrics_page(),
        reference / "wire.md": wire_page(),
        reference / "app.md": app_page(),
        reference / "spark.md": spark_page(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
