"""Packs the pipeline for `spark-submit`: a program, and the package as a zip for clusters without it.

The zip holds Python code. Compiled dependencies (msgspec, pyarrow, pandas for fleets) must be installed where executors
run, as for every program with Arrow.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import stoker

PROGRAM = '''"""The pipeline of Stoker for spark-submit: what follows its name is what follows `stoker pipeline`."""

import runpy
import sys

sys.argv[1:1] = ["pipeline"]
runpy.run_module("stoker", run_name="__main__", alter_sys=True)
'''
EPOCH = (1980, 1, 1, 0, 0, 0)
"""A fixed time, so that the same package always makes the same zip."""


@dataclass(frozen=True)
class Packed:
    """The files for `spark-submit`."""

    program: Path
    archive: Path


def pack(directory: str | Path) -> Packed:
    """Write `stoker_pipeline.py` and `stoker.zip` there, replacing files with these names."""
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    packed = Packed(place / "stoker_pipeline.py", place / "stoker.zip")
    replace(packed.program, PROGRAM.encode())
    home = Path(stoker.__file__).parent
    carried = archive_of(stoker.__file__)
    if carried is not None:  # this code itself runs from such a zip
        replace(packed.archive, Path(carried).read_bytes())
        return packed
    beside = packed.archive.with_suffix(".zip.new")
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (home, *home.parent.glob("pyspark_stoker*")):
            for file in sorted(package.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    member = zipfile.ZipInfo(str(file.relative_to(home.parent)), EPOCH)
                    archive.writestr(member, file.read_bytes(), zipfile.ZIP_DEFLATED)
    beside.replace(packed.archive)
    return packed


def replace(file: Path, content: bytes) -> None:
    """Replace atomically, so that readers never see half of it."""
    beside = file.with_suffix(f"{file.suffix}.new")
    beside.write_bytes(content)
    beside.replace(file)


def archive_of(module_file: str) -> str | None:
    """The zip that a module was loaded from, if it was."""
    inside = Path(module_file)
    return next((str(parent) for parent in inside.parents if zipfile.is_zipfile(parent)), None)
