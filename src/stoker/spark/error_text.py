"""Shortens Spark's error messages to what a person needs."""

import re


def error_text(error: Exception) -> str:
    """The message without codes, plan and call site."""
    lines = str(error).strip().splitlines()
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    if lines[0].endswith("Traceback (most recent call last):"):
        lines[0] = lines[0].removesuffix("Traceback (most recent call last):") + last_error(lines[1:])
    return re.sub(r"^: [\w.$]+: |^\[[\w.]+\] |(?<=: )\[[\w.]+\] | SQLSTATE: .*$", "", lines[0])


def last_error(stack: list[str]) -> str:
    """The last line of a Python traceback."""
    ends = [line for line in stack if re.match(r"[\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
    return ends[-1] if ends else "an error in Python"


def ours(error: Exception) -> str | None:
    """The message of a Stoker error that Spark passes on from another process, without the stacks."""
    found = re.findall(r"^(?:\w+\.)*stoker\.[\w.]+: (.+)$", str(error), re.MULTILINE)
    return found[-1] if found else None
