"""Starts a Spark session that starts quickly for small work and is sound for large work: settings, Java, and the
source.

Two things make a start slow, and are avoided. Workers would import pyspark from a zip without compiled modules, so they
get a SPARK_HOME of links to the installed package instead. The JVM would load thousands of classes one by one, so they
are kept in an archive from one start to the next. The driver of a cluster is started here and gets the same; executors
are started by the cluster. A JVM that `spark-submit` has started is left unchanged: there the code of this package may
come in a zip (`packing.py`), and then Spark's Python processes are told where it is.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from stoker.model.errors import StokerError
from stoker.spark.java import find_java, version_of
from stoker.spark.jvm_output import kept_out
from stoker.spark.packing import archive_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
"""For every session."""

DRIVER = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.pollingDelay": "200ms",
    "spark.log.level": "ERROR",
}
"""For sessions whose driver is started here: quiet, and quick to notice new data."""

LOCAL = DRIVER | {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
}
"""For sessions that run entirely on this machine: small, and on loopback only."""


SHIPPING = ("yarn", "k8s://")
"""Clusters to which Spark sends itself: it needs its own home, not one of links."""


class NoSpark(StokerError):
    """pyspark is not installed."""

    code = "no_spark"


def session(
    master: str | None = None, *, name: str = "stoker", settings: Mapping[str, str] | None = None, quick: bool = True
) -> "SparkSession":
    """A session that knows the source: on this machine with all cores, or wherever `master` says.

    `quick` is for runs of seconds to minutes; turn it off for jobs of hours, which gain from Java's better compiler.
    `settings` are Spark's own, and win over ours. An existing session is returned unchanged. A program that
    `spark-submit` has started runs where that said, unless `master` says otherwise.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise NoSpark(f"this needs pyspark: pip install 'stoker[spark]' ({error})") from None
    from stoker.spark.source import register

    running = session_there()
    if running is None:
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # its JVM is running, configured by spark-submit
        master = master or os.environ.get("STOKER_SPARK_MASTER") or (None if submitted else "local[*]")
        wanted = dict(SETTINGS)
        if master is not None and master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            wanted |= LOCAL | {"spark.sql.shuffle.partitions": str(cores_of(master))} | prepare(quick)
        elif not submitted:
            wanted |= DRIVER | prepare_driver(quick, str(master))
        wanted |= dict(settings or {})
        builder = SparkSession.builder.appName(name)
        if master is not None:
            builder = builder.master(master)
        for key, value in wanted.items():
            builder = builder.config(key, value)
        with kept_out():
            running = builder.getOrCreate()
        if not submitted or "spark.log.level" in wanted:
            running.sparkContext.setLogLevel(wanted.get("spark.log.level", "WARN"))
        carry(running.sparkContext)
    register(running)
    return running


def session_there() -> "SparkSession | None":
    """The session of this thread, or of another one: a new thread has none of its own."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def carry(context: "SparkContext") -> None:
    """Make sure that all of Spark's Python processes find this package, if it came in a zip.

    Spark gives executors the zip, but not the process in which the driver plans streams, so its path is set.
    """
    archive = archive_of(__file__)
    if archive is None:
        return
    context.addPyFile(archive)
    known = context.environment.get("PYTHONPATH")
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [archive, known]))


def cores_of(master: str) -> int:
    inside = master.partition("[")[2].rstrip("]").partition(",")[0]
    return int(inside) if inside.isdecimal() else os.cpu_count() or 1


def prepare(quick: bool) -> dict[str, str]:
    """Set up the environment of a JVM that runs all of Spark. Returns the settings that go with it."""
    home, java = homes()
    os.environ.setdefault("SPARK_HOME", str(home))
    collector = "-XX:+UseSerialGC" if quick else "-XX:+UseParallelGC"
    return {"spark.driver.extraJavaOptions": f"{collector} {java_options(home, java, quick)}"}


def prepare_driver(quick: bool, master: str) -> dict[str, str]:
    """The same for the driver of a cluster, whose own Java settings also apply."""
    home, java = homes()
    if not master.startswith(SHIPPING):
        os.environ.setdefault("SPARK_HOME", str(home))
    return {"spark.driver.defaultJavaOptions": java_options(home, java, quick)}


def homes() -> tuple[Path, Path]:
    """The homes of Spark and of Java. Spark's processes use this Java and this Python: another may lack the source."""
    cache = cache_directory()
    java = find_java(cache)
    os.environ["JAVA_HOME"] = str(java)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return linked_home(cache), java


def java_options(home: Path, java: Path, quick: bool) -> str:
    flags = ["-Xlog:disable", f"-Dlog4j2.configurationFile={home / LOGGING}"]
    # with Java's normal code cache: the quick mode's default is a fifth of it, soon full, and then compiling stops
    if quick:
        flags += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    version = version_of(java / "bin" / "java")
    archive = home / f"classes-{version}.jsa"
    if version >= 19:  # these versions make the archive by themselves
        flags += ["-XX:+AutoCreateSharedArchive", f"-XX:SharedArchiveFile={archive}"]
    else:
        kind = "SharedArchiveFile" if archive.exists() else "ArchiveClassesAtExit"
        flags.append(f"-XX:{kind}={archive}")
    return " ".join(flags)


def cache_directory() -> Path:
    """A cache that makes starts quick; it can be deleted at any time."""
    import pyspark

    base = os.environ.get("STOKER_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "stoker"
    )
    found = Path(base) / f"spark-{pyspark.__version__}"
    found.mkdir(parents=True, exist_ok=True)
    return found


def linked_home(cache: Path) -> Path:
    """A SPARK_HOME without the zip of pyspark: workers then import the installed package, which is compiled.

    The archive of classes is kept there, too, because it is valid only for these jars. `conf` is empty, because Java
    uses no archive when a directory of its class path holds anything.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = cache / f"home-{abs(hash_of(str(installed))):x}"
    home.mkdir(exist_ok=True)
    programs = home / "bin"
    if programs.is_symlink():  # of an earlier release
        programs.unlink(missing_ok=True)
    for directory in (programs, home / "conf"):
        directory.mkdir(exist_ok=True)
    for part in ("jars", "sbin", *(f"bin/{each.name}" for each in (installed / "bin").iterdir())):
        if part != SUBMIT and not (home / part).is_symlink():
            try:
                (home / part).symlink_to(installed / part)
            except FileExistsError:
                pass  # another process was faster
    write_program(home / SUBMIT, DEAF.format(quote(str(installed / SUBMIT))))
    (home / "conf" / LOGGING).unlink(missing_ok=True)
    (home / LOGGING).write_text(QUIET)
    return home


def write_program(path: Path, text: str) -> None:
    """Another process may be starting it at this moment."""
    if not path.exists():
        made = path.with_name(f".{path.name}-{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(path)


SUBMIT = "bin/spark-submit"

DEAF = """#!/bin/sh
trap '' TERM
exec {} "$@"
"""
"""Starts a JVM that a SIGTERM to the whole process group does not end: Python gets it, too, and ends the JVM when the
batch is finished. A JVM whose Python is gone ends by itself.
"""

LOGGING = "log4j2.properties"


REPEATING = (
    "executor.Executor",
    "scheduler.TaskSetManager",
    "sql.execution.datasources.v2.AppendDataExec",
    "sql.execution.datasources.v2.DataWritingSparkTask",
    "util.Utils",
)
"""Classes of Spark that log the error of a task, each with its stack, before the program gets it as an exception."""

QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
""" + "".join(
    f"logger.l{number}.name = org.apache.spark.{name}\nlogger.l{number}.level = off\n"
    for number, name in enumerate(REPEATING)
)
"""Errors only, and each once: a pipeline's user wants its output, not Spark's startup messages."""


def hash_of(text: str) -> int:
    from zlib import crc32

    return crc32(text.encode())
