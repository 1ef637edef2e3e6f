"""How the shards of one data directory are dealt to several processes: the content of `processes.json`.

    processes.json                    how many, and where; without it the root is the one journal directory itself
    lock                              held by the process that supervises the others
    deal-00000003/process-0/          a complete journal directory (`directory.py`) with every N-th shard
    deal-00000003/process-1/

`resharding.py` changes a deal.
"""

import re
from pathlib import Path
from zlib import crc32

import msgspec

from stoker.model.errors import Damaged, NewerFormat

FORMAT = 1
FACT = "processes.json"
LAYOUT = re.compile(r"deal-[0-9]{8}")


class ShardLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the shards of a directory are dealt."""

    format: int = FORMAT
    id: str
    shards: int
    processes: int
    number: int
    """Grows with every new deal, so no two have the same path."""
    checksum: int = 0
    """The checksum of all other fields."""


def layout_of(path: Path) -> ShardLayout | None:
    """How a directory is dealt; None if one process has all of it."""
    file = path / FACT
    if not file.exists():
        return None
    text = file.read_bytes()
    try:
        if (found := msgspec.json.decode(text, type=_LayoutFormat).format) > FORMAT:
            raise NewerFormat(
                f"{file} has format {found}, but this release reads up to {FORMAT}: use the later release that wrote it"
            )
        layout = msgspec.json.decode(text, type=ShardLayout)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Damaged(f"{file} cannot be read ({error}): restore the directory from a backup") from error
    if text_of(layout) != text:
        raise Damaged(f"{file} has changed since it was written: restore the directory from a backup")
    return layout


class _LayoutFormat(msgspec.Struct):
    format: int


def text_of(layout: ShardLayout) -> bytes:
    layout = msgspec.structs.replace(layout, checksum=0)
    layout = msgspec.structs.replace(layout, checksum=crc32(msgspec.json.encode(layout)))
    return msgspec.json.format(msgspec.json.encode(layout), indent=1)


def parts_of(path: Path, layout: ShardLayout | None) -> list[Path]:
    """The journal directories of a data directory, one for each process."""
    if layout is None:
        return [path]
    return [path / f"deal-{layout.number:08}" / f"process-{number}" for number in range(layout.processes)]
