"""What Spark says when it refuses something, in as few words as a person needs."""

import re


def said(error: Exception) -> str:
    """Without its codes, its plan and the call in which it happened."""
    lines = str(error).strip().splitlines()
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    return re.sub(r"^: [\w.$]+: |^\[[\w.]+\] |(?<=: )\[[\w.]+\] | SQLSTATE: .*$", "", lines[0])


def ours(error: Exception) -> str | None:
    """What one of our own errors says that Spark hands on from another process, with all the stacks in between."""
    found = re.findall(r"^(?:\w+\.)*stoker\.[\w.]+: (.+)$", str(error), re.MULTILINE)
    return found[-1] if found else None
