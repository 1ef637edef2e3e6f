"""A Spark cluster on this machine, made of the package from PyPI alone: a master and two workers, each a JVM.

They listen on loopback, at ports that the system gives. Whatever happens, only processes that were started here are
ended here; executors end with the worker that started them.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyspark

import stoker
from stoker.client.sync import Client
from stoker.spark.java import find_java, version_of
from stoker.spark.starting import cache_directory, linked_home

ROOT = Path(__file__).parents[2]
INSTALLED = os.pathsep.join([str(Path(stoker.__file__).parents[1]), str(ROOT)])
"""The way to Stoker and to these tests, for processes that have both."""
PATIENCE_S = float(os.environ.get("PATIENCE_S", "200"))
"""How long anything may take before a test gives up: everything here takes seconds on a quiet machine."""


def small() -> str:
    """What makes Java start quickly, with the classes that a session on this machine has kept, if there was one."""
    home = linked_home(cache_directory())
    version = version_of(find_java(cache_directory()) / "bin" / "java")
    archive = home / f"classes-{version}.jsa"
    kept = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return " ".join(["-Xlog:disable", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *kept])


SMALL = small()
SETTINGS = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SMALL,
    "spark.driver.memory": "640m",
    "spark.driver.extraJavaOptions": SMALL,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.pollingDelay": "200ms",
}
"""Of every application here: an executor with one core at each worker."""

LOG = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
"""
"""So much that it can be seen where the master is, and when a worker belongs to it."""


def until(condition: Callable[[], object], what: str, still: Callable[[], object] = lambda: True) -> None:
    """Wait for something that happens by itself, as long as what should bring it about is there."""
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert still() or condition(), f"{what}: cannot happen any more"
        assert time.monotonic() < give_up, f"{what}: has not happened"
        time.sleep(0.02)


def environment(**more: str) -> dict[str, str]:
    """Of processes started here: nothing of the tests' own, so that each finds its code by the way under test."""
    strange = ("STOKER_", "SPARK_", "PYSPARK_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(strange) or name == "STOKER_CACHE"}
    home = cache_directory()
    return kept | {
        "JAVA_HOME": str(find_java(home)),
        "SPARK_HOME": str(linked_home(home)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": scala_version(),
        "PYSPARK_PYTHON": sys.executable,
        **more,
    }


def scala_version() -> str:
    """A worker wants to be told, and Spark's shell scripts, which do it, are not in the way here."""
    core = next((Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar"))
    return core.name.removeprefix("spark-core_").partition("-")[0]


def class_path(home: str) -> str:
    """As Spark's launcher makes it: the classes that were kept hold for no other."""
    first = next((Path(home) / "jars").glob("slf4j-api-*.jar"))
    return f"{home}/conf/:{first}:{home}/jars/*"


class Daemon:
    """A master or a worker, and what it logs."""

    def __init__(self, folder: Path, name: str, main: str, *arguments: str) -> None:
        logging = folder / "log4j2.properties"
        logging.write_text(LOG)
        self.name, self.log = name, folder / f"{name}.log"
        own = environment(SPARK_WORKER_DIR=str(folder / name))
        java = [f"{own['JAVA_HOME']}/bin/java", "-Xmx256m", *SMALL.split(), f"-Dlog4j2.configurationFile={logging}"]
        command = [*java, "-Dspark.master.rest.enabled=false", "-cp", class_path(own["SPARK_HOME"]), main, *arguments]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=own)

    def until_logged(self, pattern: str) -> str:
        found: list[re.Match[str] | None] = [None]

        def look() -> bool:
            found[0] = re.search(pattern, self.log.read_text(errors="replace"))
            return found[0] is not None

        until(look, f"{self.name} logs {pattern!r} in {self.log}", lambda: self.process.poll() is None)
        assert found[0] is not None
        return found[0][0]

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def at(host: str) -> tuple[str, ...]:
    return ("--host", host, "--port", "0", "--webui-port", "0")


class Cluster:
    """One master, and a worker at each of these hosts."""

    def __init__(self, folder: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> None:
        self.folder = folder
        self._daemons = [Daemon(folder, "master", "org.apache.spark.deploy.master.Master", *at("127.0.0.1"))]
        try:
            self.url = self._daemons[0].until_logged(r"spark://127\.0\.0\.1:\d+")
            for number, host in enumerate(hosts):
                main, size = "org.apache.spark.deploy.worker.Worker", ("--cores", "4", "--memory", "4g")
                self._daemons.append(Daemon(folder, f"worker-{number}", main, *at(host), *size, self.url))
            for worker in self._daemons[1:]:
                worker.until_logged("Successfully registered with master")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.close()


def numbers_in(client: Client, queue: str) -> list[int]:
    """The payloads of all jobs of a queue. Nothing is pulled: a server that stops waits for what is in hand."""
    found: list[int] = []
    page = client.browse(queue, limit=1_000)
    while True:
        found += [int(job.payload) for job in page.jobs]
        if page.next_after is None:
            return sorted(found)
        page = client.browse(queue, after=page.next_after, limit=1_000)


def kill_executor(python: int) -> None:
    """kill -9 of the executor for which this Python process works, and of that: it was forked from the JVM's child."""
    java = int(told_of(int(told_of(python, "ppid")), "ppid"))
    assert "CoarseGrainedExecutorBackend" in told_of(java, "args")
    os.kill(java, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it may have ended with its executor
        os.kill(python, signal.SIGKILL)


def told_of(pid: int, what: str) -> str:
    command = ["ps", "-ww", "-o", f"{what}=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def started(command: list[str], log: Path, variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """A driver in a process group of its own: it is killed with its JVM."""
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, env=dict(variables), cwd=log.parent, start_new_session=True
        )


def killed(driver: "subprocess.Popen[bytes]") -> None:
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
