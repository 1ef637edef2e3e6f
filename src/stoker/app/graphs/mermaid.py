"""Workflows as Mermaid: text that Markdown pages show as a graph. Mermaid itself places the steps."""

import re
from collections.abc import Sequence

from stoker.app.graphs.boxes import LOOKS, Box, merge_alike

LINES_MAX = 500
"""Mermaid refuses graphs with more lines; above it, similar steps are merged."""
SPECIAL = re.compile(r"[^\w .,:()/…-]|^\W|\b_|_\b|(?<=\d)[.)](?= )")
"""Characters that end a label or are markup in it: quotes, tags, and what Markdown reads as a list or as emphasis."""


def as_mermaid(boxes: Sequence[Box]) -> str:
    if sum(len(box.after) for box in boxes) > LINES_MAX:
        boxes = merge_alike(boxes)
    lines = ["flowchart LR"]
    for number, box in enumerate(boxes):
        detail = f"<br/>{_escaped(box.detail)}" if box.detail else ""
        state = box.state if box.state in LOOKS else "blocked"
        lines.append(f'    s{number}["{_escaped(box.title)}{detail}"]:::{state}')
    for number, box in enumerate(boxes):
        lines += [f"    s{other} {'-.->' if other in box.dashed else '-->'} s{number}" for other in box.after]
    for state, look in LOOKS.items():
        lines.append(f"    classDef {state} fill:{look.light[0]},stroke:{look.light[1]},color:#222")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
