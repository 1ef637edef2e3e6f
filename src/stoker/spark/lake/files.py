"""The files of a lake: a directory that all of Spark's machines see, or a prefix of an object store.

Spark's JVM has no part in this, so commands that only look at tables need no Spark. Executors use it, too: a copy of it
travels with the tasks that write.
"""

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs as arrow_fs

from stoker.model.errors import InvalidRequest, StokerError

P = ParamSpec("P")
T = TypeVar("T")
LOCAL = "file://"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WORDS_MAX = 500
"""Characters of a store's error that are quoted."""
FROM_ENVIRONMENT = "AWS_"
UNSAFE = "aws_s3_allow_unsafe_rename"
TRUE = ("1", "true", "yes", "on", "y", "ok")


class FilesFailed(StokerError):
    """The files of a lake cannot be read or written."""

    code = "files_failed"


def store_errors() -> tuple[type[Exception], ...]:
    """What a store raises. Executors that write to a directory have no deltalake, and need none."""
    known = (("deltalake.exceptions", "DeltaError"), ("obstore.exceptions", "BaseError"))
    found = [getattr(sys.modules[module], name) for module, name in known if module in sys.modules]
    return (OSError, pa.ArrowException, *found)


def in_words(method: "Callable[Concatenate[Files, P], T]") -> "Callable[Concatenate[Files, P], T]":
    """Turns an error of the store into one that names the lake, without the stack."""

    @functools.wraps(method)
    def told(self: "Files", /, *given: P.args, **named: P.kwargs) -> T:
        try:
            return method(self, *given, **named)
        except store_errors() as error:
            raise self.failed(error) from None

    return told


def store_options(given: Mapping[str, str] | None) -> dict[str, str]:
    """The settings of an object store: those given, and the AWS_* variables of the environment.

    They travel with the tasks that read and write, so machines of a cluster need no settings of their own. An endpoint
    with http:// is taken as it is: other tools for S3 do not ask again, either.
    """
    found = {name.lower(): value for name, value in os.environ.items() if name.startswith(FROM_ENVIRONMENT)}
    found |= {name.lower(): value for name, value in (given or {}).items()}
    if found.get(UNSAFE, "").lower() in TRUE:
        raise InvalidRequest(
            f"{UNSAFE.upper()} is set: then two writers can make the same version of a table, and the events of one of"
            " them are lost. Unset it: a lake needs a store with conditional writes, and no such setting"
        )
    endpoint = next((found[name] for name in ENDPOINTS if name in found), "")
    return ({"allow_http": "true"} if endpoint.startswith("http://") else {}) | found


ENDPOINTS = ("aws_endpoint_url", "aws_endpoint_url_s3", "aws_endpoint")


class Files:
    """The files below one path. Names are relative to it."""

    def __init__(self, root: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.root = root.removeprefix(LOCAL).rstrip("/") or "/"
        self.storage_options = None if self.is_local else store_options(storage_options)
        """What delta-rs needs to reach the store; None for a directory."""
        self._system: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "storage_options": self.storage_options, "_system": None}

    def failed(self, error: BaseException) -> FilesFailed:
        """An error of the store in one line that names the lake."""
        lines = [line.strip(" ↳") for line in COLOURS.sub("", str(error)).splitlines()]
        what = ": ".join(dict.fromkeys(line for line in lines if line))[:WORDS_MAX] or type(error).__name__
        return FilesFailed(f"the lake at {self.root} cannot be reached, read or written: {what}")

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def __truediv__(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    @property
    def system(self) -> Any:
        """The store, with names relative to the root."""
        if self._system is None:
            if self.is_local:
                self._system = arrow_fs.SubTreeFileSystem(self.root, arrow_fs.LocalFileSystem())
            else:
                from stoker.spark.lake.object_store import ObjectStore

                self._system = arrow_fs.PyFileSystem(ObjectStore(self.root, self.storage_options))
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
    def check_conditional(self) -> None:
        """Refuse a store in which a version of a table can be overwritten. A directory has no such trouble."""
        if self.storage_options is not None:
            from stoker.spark.lake.object_store import check_conditional

            check_conditional(self.root, self.storage_options)

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
