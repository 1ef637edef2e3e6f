"""The files of a lake: a directory that all of Spark's machines see, or a prefix of an object store.

Spark's JVM has no part in this, so commands that only look at tables need no Spark. Executors use it, too: a copy of it
travels with the tasks that write.
"""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs as arrow_fs

from stoker.model.errors import StokerError

P = ParamSpec("P")
T = TypeVar("T")
LOCAL = "file://"


class FilesFailed(StokerError):
    """The files of a lake cannot be read or written."""

    code = "files_failed"


def store_errors() -> tuple[type[Exception], ...]:
    """What a store raises. Executors that write to a directory have no deltalake, and need none."""
    delta = sys.modules.get("deltalake.exceptions")
    return (OSError, pa.ArrowException, *([delta.DeltaError] if delta is not None else []))


def in_words(method: "Callable[Concatenate[Files, P], T]") -> "Callable[Concatenate[Files, P], T]":
    """Turns an error of the store into one that names the lake, without the stack."""

    @functools.wraps(method)
    def told(self: "Files", /, *given: P.args, **named: P.kwargs) -> T:
        try:
            return method(self, *given, **named)
        except store_errors() as error:
            what = (str(error).splitlines() or [type(error).__name__])[0]
            raise FilesFailed(f"the lake at {self.root} cannot be reached, read or written: {what}") from None

    return told


class Files:
    """The files below one path. Names are relative to it."""

    def __init__(self, root: str) -> None:
        self.root = root.removeprefix(LOCAL).rstrip("/") or "/"
        self._system: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "_system": None}

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def __truediv__(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    @property
    def system(self) -> Any:
        """The store, with names relative to the root. An object store takes its settings from the environment."""
        if self._system is None:
            if self.is_local:
                self._system = arrow_fs.SubTreeFileSystem(self.root, arrow_fs.LocalFileSystem())
            else:
                from deltalake.fs import DeltaStorageHandler

                self._system = arrow_fs.PyFileSystem(DeltaStorageHandler(self.root))
        return self._system

    @in_words
    def check_place(self) -> None:
        """Fail if a directory cannot be made here."""
        place = self.root
        while self.is_local and not os.path.lexists(place) and os.path.dirname(place) != place:
            place = os.path.dirname(place) or "."
        if self.is_local and not os.path.isdir(place):
            raise NotADirectoryError(f"{place} is not a directory")
        if self.is_local and not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(f"{place} is not writable")

    @in_words
    def exists(self, name: str) -> bool:
        return bool(self.system.get_file_info(name).type != arrow_fs.FileType.NotFound)

    @in_words
    def names(self, name: str) -> list[str]:
        """The visible entries of a directory; none if it does not exist."""
        found = self.system.get_file_info(arrow_fs.FileSelector(name, allow_not_found=True))
        return sorted(entry.base_name for entry in found if not entry.base_name.startswith(("_", ".")))

    @in_words
    def sizes(self, names: Iterable[str]) -> dict[str, int | None]:
        """The size of each file; None if it is not there."""
        listed = list(names)
        found = self.system.get_file_info(listed)
        return {
            name: info.size if info.type == arrow_fs.FileType.File else None
            for name, info in zip(listed, found, strict=True)
        }

    @in_words
    def open_new(self, name: str) -> Any:
        """A stream that writes a new file; its directory is made if need be."""
        if self.is_local:
            os.makedirs(os.path.dirname(self / name), exist_ok=True)
        return self.system.open_output_stream(name)

    @in_words
    def move(self, name: str, to: str) -> None:
        """Rename a file or directory of a local lake."""
        os.makedirs(os.path.dirname(self / to), exist_ok=True)
        self.system.move(name, to)

    @in_words
    def remove(self, name: str) -> None:
        """Remove a file, or a directory with all that is in it; nothing happens if it is not there."""
        kind = self.system.get_file_info(name).type
        if kind == arrow_fs.FileType.Directory:
            self.system.delete_dir(name)
        elif kind == arrow_fs.FileType.File:
            self.system.delete_file(name)

    @in_words
    def read_text(self, name: str) -> str:
        with self.system.open_input_stream(name) as stream:
            return bytes(stream.read()).decode()

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_text(name))

    @in_words
    def write_json(self, name: str, value: Any) -> None:
        """Written beside and renamed, so that readers never see half of it; an object store shows only whole files."""
        text = json.dumps(value, sort_keys=True).encode()
        beside = f"{name}.{uuid4().hex}" if self.is_local else name
        if self.is_local:
            os.makedirs(self.root, exist_ok=True)
        with self.system.open_output_stream(beside) as stream:
            stream.write(text)
        if beside != name:
            self.system.move(beside, name)
