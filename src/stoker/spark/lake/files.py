"""Files of a lake wherever Hadoop can read and write: a local directory, HDFS, an object store.

Spark's own classes do the work; here are the few things that a lake needs besides tables.
"""

import json
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession


class Files:
    """The files below one path."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        assert jvm is not None, "a lake needs a session with a JVM of its own, not Spark Connect"
        # By its whole name, and once: of a name with dots in it, each part is first looked for in all of Spark's jars.
        self._path_class: Any = getattr(jvm, "org.apache.hadoop.fs.Path")
        self.root = root.rstrip("/")
        self._system = self._path("").getFileSystem(spark._jsc.hadoopConfiguration())

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._path(name)))

    def names(self, name: str) -> list[str]:
        """What a directory holds, without what is hidden; nothing if it is not there."""
        if not self.exists(name):
            return []
        found = [status.getPath().getName() for status in self._system.listStatus(self._path(name))]
        return sorted(entry for entry in found if not entry.startswith(("_", ".")))

    def move(self, name: str, to: str) -> None:
        """Rename: at once, and only if nothing is there. Raises if it cannot be done."""
        self._system.mkdirs(self._path(to).getParent())
        if self.exists(to) or not self._system.rename(self._path(name), self._path(to)):
            raise FileExistsError(f"{self.root}/{to}")

    def size(self, name: str) -> int:
        """Bytes of all files in a directory."""
        return int(self._system.getContentSummary(self._path(name)).getLength())

    def remove(self, name: str) -> None:
        self._system.delete(self._path(name), True)

    def read_json(self, name: str) -> Any:
        stream = self._system.open(self._path(name))
        try:
            return json.loads(bytes(stream.readAllBytes()).decode())
        finally:
            stream.close()

    def write_json(self, name: str, value: Any) -> None:
        """Written beside and renamed: nobody ever reads half of it."""
        beside = f"_{name.replace('/', '-')}.{uuid4().hex}"
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
