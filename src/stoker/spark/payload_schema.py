"""The option `payloadSchema`: parses names and types of fields, far enough to say what is wrong with them.

Spark parses them again and decides. But its errors would quote a schema that the user did not write, and for some types
come only with the rows. This module knows neither Spark nor Arrow.
"""

import re
from collections.abc import Iterator

from stoker.model.errors import InvalidRequest

WHOLE = ("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long")
DECIMALS = ("decimal", "dec", "numeric")
PLAIN = (
    *("string", "boolean", *WHOLE, "float", "real", "double"),
    *("date", "timestamp", "timestamp_ltz", "timestamp_ntz", "binary"),
)
"""Types that payload values can have. Variants and intervals have no form in JSON or MessagePack."""
NESTED = ("array<...>", "map<..., ...>", "struct<...>")
SHOWN = ", ".join(
    ("string", "boolean", "int", "bigint", "double", "decimal(10,2)", "date", "timestamp", "binary", *NESTED)
)
TOKEN = re.compile(r"\s*(`(?:``|[^`])*`|'(?:\\.|[^'])*'|\"(?:\\.|[^\"])*\"|\w+|[<>(),:]|\S)")


def checked(text: str) -> str:
    """The fields as in `struct<...>`. Raises `InvalidRequest`, which names the first wrong one."""
    inner = re.fullmatch(r"\s*struct\s*<(.*)>\s*", text, re.IGNORECASE | re.DOTALL)
    fields = inner[1] if inner is not None else text
    reader = SchemaReader(TOKEN.findall(fields), text)
    reader.fields()
    if reader.next is not None:
        raise reader.wrong(f"{reader.next!r} stands where a comma or the end was expected")
    return fields.strip()


class SchemaReader:
    """Walks through the words of a schema."""

    def __init__(self, tokens: list[str], text: str) -> None:
        self._tokens: Iterator[str] = iter(tokens)
        self._text = text
        self.next: str | None = None
        self._go()

    def _go(self) -> str:
        """Return the next word and move on."""
        found = self.next
        self.next = next(self._tokens, None)
        return found or ""

    def _take(self, *words: str) -> bool:
        """Move on if the next word is one of these."""
        if self.next is None or self.next.lower() not in words:
            return False
        self._go()
        return True

    def wrong(self, why: str) -> InvalidRequest:
        return InvalidRequest(
            f"option payloadSchema = {self._text[:80]!r}: {why}; expected fields and types such as"
            f" `user_id bigint, mail string` (types are {SHOWN})"
        )

    def fields(self) -> None:
        seen: set[str] = set()
        while True:
            name = self._go()
            if not re.fullmatch(r"`.+`|[A-Za-z0-9_]+", name, re.DOTALL):
                raise self.wrong(f"{name!r} needs backticks to be a name" if name else "a field is missing")
            plain = name.strip("`").lower()
            if plain in seen:
                raise self.wrong(f"the field {name} is there twice, and case does not count")
            seen.add(plain)
            self._take(":")
            self._type(name)
            if self._take("not") and not self._take("null"):
                raise self.wrong(f"NOT without NULL after the field {name}")
            if self._take("comment"):
                while self.next is not None and self.next[0] in "'\"":
                    self._go()
            if not self._take(","):
                return

    def _type(self, name: str) -> None:
        kind = self._go().lower()
        if kind in DECIMALS:
            self._digits(name)
        elif kind in PLAIN:
            return
        elif kind not in ("array", "map", "struct"):
            raise self.wrong(f"the field {name} has no type" if not kind else f"the field {name} has the type {kind!r}")
        elif not self._take("<"):
            raise self.wrong(f"{kind} of the field {name} does not say of what")
        else:
            self._inner(kind, name)
            if not self._take(">"):
                raise self.wrong(f"{kind}<...> of the field {name} does not end")

    def _inner(self, kind: str, name: str) -> None:
        if kind == "struct":
            self.fields()
            return
        if kind == "map" and (self.next or "").lower() not in ("string", *WHOLE):
            raise self.wrong(f"keys of the map {name} are {self.next!r}, and not string or a whole number")
        self._type(name)
        if kind == "map":
            if not self._take(","):
                raise self.wrong(f"map<...> of the field {name} needs a type for keys and one for values")
            self._type(name)

    def _digits(self, name: str) -> None:
        """Check a decimal's digits: how many in all, and how many behind the point."""
        if not self._take("("):
            return
        said = ""
        while self.next is not None and not self._take(")"):
            said += self._go()
        found = re.fullmatch(r"(\d+)(?:,(\d+))?", said)
        if found is None or not int(found[2] or 0) <= int(found[1]) <= 38:
            raise self.wrong(f"decimal({said}) of the field {name}: at most 38 digits, and not more behind the point")
