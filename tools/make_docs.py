"""Make the reference pages of `docs/` from the code: states, options, commands, errors, limits, events.

Run it after editing `src/stoker/model`: `python tools/make_docs.py`. A test fails when a page is not up to date.
What the pages say stands in the docstrings there, and nowhere else.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stoker.model import commands, errors, events, limits, options, replies, states

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
    """A class of a module, with the heading of the section that it stands in."""

    name: str
    section: str
    meaning: str
    fields: list[Field]
    bases: str


# --- reading the code --------------------------------------------------------------------------------


def classes_of(module: Any) -> dict[str, Class]:
    source = Path(module.__file__).read_text()
    sections = [
        (number, line.strip("#- ")) for number, line in enumerate(source.splitlines(), 1) if line.startswith("# --- ")
    ]
    found: dict[str, Class] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            section = next((title for number, title in reversed(sections) if number < node.lineno), "")
            fields = list(fields_of(node.body, getattr(module, node.name), aliases_of(source)))
            bases = ", ".join(map(ast.unparse, node.bases))
            found[node.name] = Class(node.name, section, joined(ast.get_docstring(node)), fields, bases)
    return found


def fields_of(body: list[ast.stmt], kind: type[Any], aliases: dict[str, str]) -> Iterator[Field]:
    for place, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            annotation = ast.unparse(node.annotation)
            for alias, meaning in aliases.items():
                annotation = re.sub(rf"\b{alias}\b", meaning, annotation)
            yield Field(name, annotation, default_of(kind, name), docstring_at(body, place + 1))


def aliases_of(source: str) -> dict[str, str]:
    """Names for a choice of words: `Jitter = Literal["none", "equal"]` reads better as the words themselves."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = ast.unparse(node.value)
            if value.startswith("Literal[") or " | " in value:
                found[node.targets[0].id] = value.removeprefix("Literal[").removesuffix("]").replace("', '", "' | '")
    return found


def docstring_at(body: list[ast.stmt], place: int) -> str:
    """The text that stands right below a field."""
    node = body[place] if place < len(body) else None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return joined(node.value.value)
    return ""


def default_of(kind: type[Any], name: str) -> str:
    if not issubclass(kind, msgspec.Struct):
        return ""
    for field in msgspec.structs.fields(kind):
        if field.name == name:
            if field.default_factory is not msgspec.NODEFAULT:
                return shown(field.default_factory())
            return "" if field.default is msgspec.NODEFAULT else shown(field.default)
    return ""


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
    """The module's own constants that say what they are for."""
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
    if not any(field.meaning for field in fields):  # the class has said it all
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
        "A job is in exactly one of these states, and there are no other ways between them than those below. Paused,"
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
        "Why a delivery failed, or a job ended otherwise than well: "
        + ", ".join(code(reason) for reason in states.Reason)
        + ".",
    )


def options_page() -> str:
    blocks = []
    for found in sorted(classes_of(options).values(), key=lambda found: found.name != "Options"):  # what is asked first
        blocks += [f"## {found.name}", found.meaning, field_table(found.fields)]
    intro = joined((options.__doc__ or "").partition("\n\n")[2])
    return page("Options", "model/options.py", opening(options), intro, *blocks)


def commands_page() -> str:
    answers = classes_of(replies)
    blocks: list[str] = []
    section = ""
    for found in classes_of(commands).values():
        reply = re.fullmatch(r"Command\[r\.(\w+)\]", found.bases)
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
    return page("Commands", "model/commands.py", opening(commands), *blocks)


DRAWN = re.compile(r"^[ |`-]+(?P<name>[A-Z]\w+) {2,}(?P<rest>.+)$", re.MULTILINE)


def errors_page() -> str:
    """What each error means stands in the drawn tree, beside its name."""
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


def pages() -> dict[Path, str]:
    reference = DOCS / "reference"
    return {
        DOCS / "states.md": states_page(),
        reference / "options.md": options_page(),
        reference / "commands.md": commands_page(),
        reference / "errors.md": errors_page(),
        reference / "limits.md": limits_page(),
        reference / "events.md": events_page(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
