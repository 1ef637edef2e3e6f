"""The files of a lake, wherever Hadoop can read and write: a local directory, HDFS, an object store.

Spark's own classes do the work; this adds the few things that a lake needs besides tables.
"""

import functools
import json
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from stoker.model.errors import StokerError

P = ParamSpec("P")
T = TypeVar("T")


class FilesFailed(StokerError):
    """Hadoop cannot read or write the files of a lake."""

    code = "files_failed"


def in_words(method: "Callable[Concatenate[Files, P], T]") -> "Callable[Concatenate[Files, P], T]":
    """Turns an error of Hadoop into one that names the lake, without the stack."""

    @functools.wraps(method)
    def told(self: "Files", /, *given: P.args, **named: P.kwargs) -> T:
        try:
            return method(self, *given, **named)
        except Py4JJavaError as error:
            java = error.java_exception
            what = f"{java.getClass().getSimpleName()}: {java.getMessage()}".splitlines()[0]
            raise FilesFailed(f"the lake at {self.root} cannot be reached, read or written: {what}") from None

    return told


class Files:
    """The files below one path."""

    @in_words
    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        assert jvm is not None, "a lake needs a session with a JVM of its own, not Spark Connect"
        # By its full name, and only once: for a name with dots, py4j first searches all of Spark's jars for each part.
        self._path_class: Any = getattr(jvm, "org.apache.hadoop.fs.Path")
        self.root = root.rstrip("/")
        self._system = self._path("").getFileSystem(spark._jsc.hadoopConfiguration())

    @in_words
    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._path(name)))

    @in_words
    def names(self, name: str) -> list[str]:
        """The visible entries of a directory; none if it does not exist."""
        if not self.exists(name):
            return []
        found = [status.getPath().getName() for status in self._system.listStatus(self._path(name))]
        return sorted(entry for entry in found if not entry.startswith(("_", ".")))

    @in_words
    def move(self, name: str, to: str) -> None:
        """Rename atomically, and only if the target does not exist. Raises if it cannot be done."""
        self._system.mkdirs(self._path(to).getParent())
        if self.exists(to) or not self._system.rename(self._path(name), self._path(to)):
            raise FileExistsError(f"{self.root}/{to}")

    @in_words
    def size(self, name: str) -> int:
        """Bytes of all files in a directory."""
        return int(self._system.getContentSummary(self._path(name)).getLength())

    @in_words
    def remove(self, name: str) -> None:
        self._system.delete(self._path(name), True)

    @in_words
    def read_json(self, name: str) -> Any:
        stream = self._system.open(self._path(name))
        try:
            return json.loads(bytes(stream.readAllBytes()).decode())
        finally:
            stream.close()

    @in_words
    def write_json(self, name: str, value: Any) -> None:
        """Written beside and renamed, so that readers never see half of it."""
        beside = f"_new/{name.replace('/', '-')}.{uuid4().hex}"
        stream = self._system.create(self._path(beside))
        try:
            stream.write(bytearray(json.dumps(value, sort_keys=True).encode()))
        finally:
            stream.close()
        self._system.mkdirs(self._path(name).getParent())
        if self.exists(name):
            self.remove(name)
        if not self._system.rename(self._path(beside), self._path(name)):
            raise OSError(f"{self.root}/{name} could not be written")

    def __truediv__(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _path(self, name: str) -> Any:
        return self._path_class(f"{self.root}/{name}" if name else self.root)
