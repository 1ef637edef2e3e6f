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
    loose: list[tuple[int, Call]] = []
    """Writes and truncations since then, with their places in the trace."""


class Names(msgspec.Struct):
    """The directory."""

    now: dict[str, Content] = {}
    flushed: dict[str, Content] = {}
    loose: list[tuple[int, Call, Content]] = []


def replay(calls: Sequence[Call]) -> Names:
    """The directory after these calls, with all that is not flushed kept apart."""
    names = Names()
    for place, call in enumerate(calls):
        if call.verb == "sync_directory":
            names.flushed, names.loose = settle(names, call.covers)
            continue
        content = names.now.get(call.name)
        if content is None or call.verb == "create":
            if call.verb in ("delete", "sync"):
                continue
            content = content or Content(bytearray())
            if call.name in names.now:  # an old file is cut to nothing
                content.loose.append((place, Call("truncate", call.name)))
                continue
            names.now[call.name] = content
            names.loose.append((place, Call("create", call.name), content))
        match call.verb:
            case "write" | "truncate":
                content.loose.append((place, call))
            case "sync":
                for _, change in [each for each in content.loose if each[0] < call.covers]:
                    carry_out(content.flushed, change)
                content.loose = [each for each in content.loose if each[0] >= call.covers]
            case "delete":
                del names.now[call.name]
                names.loose.append((place, call, content))
            case "rename":
                del names.now[call.name]
                names.now[call.to] = content
                names.loose.append((place, call, content))
    return names


def settle(names: Names, covers: int) -> tuple[dict[str, Content], list[tuple[int, Call, Content]]]:
    flushed = dict(names.flushed)
    for place, call, content in names.loose:
        if place < covers:
            rename(flushed, call, content)
    return flushed, [each for each in names.loose if each[0] >= covers]


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
    for call, content in kept([(call, content) for _, call, content in names.loose], chance.choice(FATES), chance):
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
    loose = [call for _, call in content.loose]
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
