"""Scripts, styles and pictures of the pages: our own, and files of others that are kept here unchanged.

Nothing is loaded from other sites, and nothing is built. A browser may keep a file for ever, because its address has
the checksum of all of them.
"""

import gzip
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "static"

KINDS: Final = {
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}


class Vendored(NamedTuple):
    """A file of another project, as its package on npm has it."""

    file: str
    package: str
    version: str
    path: str
    """The place of the file in the package."""
    licence: str
    """Its text is beside the file."""
    sha256: str


VENDORED: Final = (
    Vendored(
        "htmx.min.js",
        "htmx.org",
        "2.0.11",
        "dist/htmx.min.js",
        "0BSD",
        "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    ),
    Vendored(
        "idiomorph-ext.min.js",
        "idiomorph",
        "0.8.0",
        "dist/idiomorph-ext.min.js",
        "0BSD",
        "5811b9a7eda14878b7dab4378bf60432e1bb6f11fcfb970cc26540642650181e",
    ),
    Vendored(
        "uPlot.iife.min.js",
        "uplot",
        "1.6.32",
        "dist/uPlot.iife.min.js",
        "MIT",
        "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    ),
    Vendored(
        "uPlot.min.css",
        "uplot",
        "1.6.32",
        "dist/uPlot.min.css",
        "MIT",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
)
"""Every file in `static/vendor` but the licences."""

LICENCES: Final = {"htmx.org": "htmx.LICENSE", "idiomorph": "idiomorph.LICENSE", "uplot": "uPlot.LICENSE"}


class Asset(NamedTuple):
    """A file as it is sent."""

    kind: bytes
    body: bytes
    packed: bytes
    """The same with gzip."""


@cache
def assets() -> dict[str, Asset]:
    """Every file by its name; vendored names are unlike our own."""
    found: dict[str, Asset] = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in KINDS:
            body = path.read_bytes()
            found[path.name] = Asset(KINDS[path.suffix], body, gzip.compress(body, mtime=0))
    return found


@cache
def version() -> str:
    """Changes when any file does."""
    digest = sha256()
    for name, asset in assets().items():
        digest.update(name.encode() + b"\0" + asset.body)
    return digest.hexdigest()[:12]


def url_of(name: str) -> str:
    return f"/ui/static/{version()}/{name}"
