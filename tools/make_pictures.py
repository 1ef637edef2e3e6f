"""Draws the pictures of `docs/workflows.md`, as `stoker workflow show --svg` would: `python tools/make_pictures.py`."""

from pathlib import Path

from stoker.app.graphs.boxes import Box
from stoker.app.graphs.svg import as_svg

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"

GRAPHS: dict[str, list[Box]] = {
    "workflow": [
        Box("listing", "files: completed", "completed"),
        Box("resize", "images, group of 1,234: 1,200 done, 34 active", "running", (0,)),
        Box("index", "search, group of 12: 12 waiting", "running", (0,)),
        Box("scan", "safety: completed", "completed", (0,)),
        Box("report", "mail: blocked", "blocked", (1, 2, 3)),
        Box("clean up", "files: blocked", "blocked", (4, 0), (4,)),
    ],
    "failure": [
        Box("extract", "etl: completed", "completed"),
        Box("enrich", "etl, group of 10: 9 done, 1 failed", "failed", (0,)),
        Box("notify", "mail: completed", "completed", (1,), (1,)),
        Box("load", "warehouse: failed", "failed", (1,)),
    ],
    "open": [
        Box("fetch", "web: active", "running"),
        Box("parse", "cpu: to be filled", "blocked", (0,)),
        Box("sum", "cpu: blocked", "blocked", (1,)),
    ],
}


def pictures() -> dict[Path, str]:
    return {PICTURES / f"{name}.svg": as_svg(boxes, name) for name, boxes in GRAPHS.items()}


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for path, picture in pictures().items():
        path.write_text(picture, encoding="utf-8")
