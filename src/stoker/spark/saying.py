"""What Spark says when it refuses something, in as few words as a person needs."""

import re


def said(error: Exception) -> str:
    """Without its codes, its plan and the call in which it happened."""
    lines = str(error).strip().splitlines()
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    if lines[0].endswith("Traceback (most recent call last):"):
        lines[0] = lines[0].removesuffix("Traceback (most recent call last):") + last_error(lines[1:])
    return re.sub(r"^: [\w.$]+: |^\[[\w.]+\] |(?<=: )\[[\w.]+\] | SQLSTATE: .*$", "", lines[0])


def last_error(stack: list[str]) -> str:
    """What a stack of Python's ends with."""
    ends = [line for line in stack if re.match(r"[\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
    return ends[-1] if ends else "an error in Python"


def ours(error: Exception) -> str | None:
    """What one of our own errors says that Spark hands on from another process, with all the stacks in between."""
    found = re.findall(r"^(?:\w+\.)*stoker\.[\w.]+: (.+)$", str(error), re.MULTILINE)
    return found[-1] if found else None
