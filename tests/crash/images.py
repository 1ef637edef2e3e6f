"""What a power cut leaves of a traced directory.

A file is whatever was flushed, and of what was written since then any part: each write whole, not at all, or torn into
sectors of 512 bytes, in any order. The directory is what it was at its last flush, and of the names made, moved and
removed since then any of them. A real file system is kinder; nothing that we promise may depend on that.
"""

import random
from collections.abc import Sequence

import msgspec

from tests.crash.watching import Call

SECTOR = 512

FATES = ("nothing", "everything", "a prefix", "some", "sectors")
"""What happens to what was not flushed: chosen for each image."""


class Content(msgspec.Struct):
    """A file, whatever its name is."""

    flushed: bytearray
    loose: list[Call] = []
    """Writes and truncations since then."""


class Names(msgspec.Struct):
    """The directory."""

    now: dict[str, Content] = {}
    flushed: dict[str, Content] = {}
    loose: list[tuple[Call, Content]] = []
    """Names made, moved and removed since then."""


def replay(calls: Sequence[Call]) -> Names:
    """The directory after these calls, with all that is not flushed kept apart."""
    names = Names()
    for call in calls:
        if call.verb == "sync_directory":
            for loose, content in names.loose:
                rename(names.flushed, loose, content)
            names.loose = []
        elif call.verb in ("delete", "rename"):
            moved = names.now.get(call.name)
            if moved is not None:
                rename(names.now, call, moved)
                names.loose.append((call, moved))
        else:
            change(content_of(names, call), call)
    return names


def content_of(names: Names, call: Call) -> Content:
    """The file that a call is about. What is written to and was never made was made out of sight."""
    content = names.now.get(call.name)
    if content is None:
        content = names.now[call.name] = Content(bytearray())
        names.loose.append((Call("create", call.name), content))
    return content


def change(content: Content, call: Call) -> None:
    if call.verb == "sync":
        for loose in content.loose:
            carry_out(content.flushed, loose)
        content.loose = []
    else:
        content.loose.append(Call("truncate", call.name) if call.verb == "create" else call)


def rename(names: dict[str, Content], call: Call, content: Content) -> None:
    if call.verb == "create":
        names[call.name] = content
    else:
        names.pop(call.name, None)
        if call.verb == "rename":
            names[call.to] = content


def carry_out(data: bytearray, call: Call, start: int = 0, stop: int | None = None) -> None:
    """A change, or the part of a write from `start` to `stop`."""
    if call.verb == "truncate":
        if call.offset < len(data):
            del data[call.offset :]
        else:
            data.extend(bytes(call.offset - len(data)))
        return
    part = call.data[start:stop]
    at = call.offset + start
    if at > len(data):
        data.extend(bytes(at - len(data)))
    data[at : at + len(part)] = part


def after_power_cut(calls: Sequence[Call], chance: random.Random) -> dict[str, bytes]:
    """One of the directories that may be found when the power is back: names and contents."""
    names = replay(calls)
    fate = chance.choice(FATES)
    found = dict(names.flushed)
    for call, content in kept(names.loose, chance.choice(FATES), chance):
        rename(found, call, content)
    contents: dict[int, bytes] = {}
    for content in found.values():
        if id(content) not in contents:
            contents[id(content)] = torn(content, fate, chance)
    return {name: contents[id(content)] for name, content in sorted(found.items())}


def kept(changes: list[tuple[Call, Content]], fate: str, chance: random.Random) -> list[tuple[Call, Content]]:
    if fate == "nothing":
        return []
    if fate == "everything":
        return changes
    if fate == "a prefix":
        return changes[: chance.randint(0, len(changes))]
    return [change for change in changes if chance.random() < 0.5]


def torn(content: Content, fate: str, chance: random.Random) -> bytes:
    data = bytearray(content.flushed)
    loose = content.loose
    if fate == "a prefix":
        loose = loose[: chance.randint(0, len(loose))]
    share = chance.choice([0.1, 0.5, 0.9])
    for call in loose:
        if fate in ("everything", "a prefix") or (fate == "some" and chance.random() < share):
            carry_out(data, call)
        elif fate == "sectors":
            tear(data, call, share, chance)
    return bytes(data)


def tear(data: bytearray, call: Call, share: float, chance: random.Random) -> None:
    """Each sector of a write reaches the disk or does not."""
    if call.verb == "truncate":
        if chance.random() < share:
            carry_out(data, call)
        return
    start = 0
    while start < len(call.data):
        stop = min(len(call.data), (call.offset + start) // SECTOR * SECTOR + SECTOR - call.offset)
        if chance.random() < share:
            carry_out(data, call, start, stop)
        start = stop
