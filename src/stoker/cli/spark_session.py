"""Runs Spark for one command: started quietly, ended by Ctrl-C or SIGTERM, with readable errors.

The lake stays consistent however a command ends: a batch is visible whole or not at all, and the next run makes it
again. So a command that is stopped waits for nothing: it ends the JVM with everything that it started.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from stoker.cli import exit_codes
from stoker.cli.parameters import TOKEN
from stoker.model.errors import InvalidRequest, StokerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODES = {signal.SIGINT: exit_codes.INTERRUPTED, signal.SIGTERM: exit_codes.TERMINATED}
GRACE_S = 5.0
"""How long a JVM may take to end by itself and remove its temporary files."""


class SparkFailed(StokerError):
    """Spark, or Stoker's code inside it, failed."""

    code = "spark_failed"


class CommandEnded(BaseException):
    """A signal ends the command. Not a subclass of Spark's errors or ours, so their handlers do not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)


@contextmanager
def spark_at(master: str | None, afterwards: str) -> "Iterator[SparkSession]":
    """A session; a line says that it is starting. A signal ends the JVM and the command, which prints `afterwards`."""
    with signals_raised():
        try:
            with in_plain_words():
                yield quietly_started(master)
        except (CommandEnded, KeyboardInterrupt) as ended:  # KeyboardInterrupt while Spark handles the signal itself
            number = ended.number if isinstance(ended, CommandEnded) else signal.SIGINT
            let_go()
            click.echo(f"ended by {number.name}: {afterwards}", sys.__stderr__)
            end_java(ended)
            raise click.exceptions.Exit(CODES[number]) from None


@contextmanager
def signals_raised() -> Iterator[None]:
    """SIGINT and SIGTERM raise `CommandEnded` in here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, raised) for number in CODES}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raised(number: int, frame: FrameType | None) -> NoReturn:
    """Let go of the JVM first: threads that wait for it must fail before `CommandEnded` gets past the code that joins
    them."""
    let_go()
    raise CommandEnded(number)


def let_go() -> None:
    for number in CODES:  # handle only the first signal: the rest takes a moment and must not be interrupted
        signal.signal(number, signal.SIG_IGN)
    logging.disable()  # errors from here on are consequences, and py4j and Spark would log their stacks
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
    java = known_java()
    if java is not None and java.stdin is not None:
        java.stdin.close()  # the JVM notices this


def known_java() -> "subprocess.Popen[bytes] | None":
    """The JVM that this process has started, if any."""
    core = sys.modules.get("pyspark.core.context")
    gateway: Any = core.SparkContext._gateway if core is not None else None
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return java


def end_java(ended: BaseException) -> None:
    """End the JVM so that it removes its temporary files. A JVM that is still starting has none, and would wait forever
    for its first request.
    """
    known = known_java()
    java = known or starting_java(ended)
    if java is None:
        for child in children():
            os.kill(child, signal.SIGKILL)
        return
    try:
        java.wait(GRACE_S if known is not None else 0)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def starting_java(ended: BaseException) -> "subprocess.Popen[bytes] | None":
    """The JVM while it starts: only the function that waits for it has it, so it is found in the traceback."""
    for frame, _ in traceback.walk_tb(ended.__traceback__):
        if frame.f_code.co_name == "launch_gateway":
            java: subprocess.Popen[bytes] | None = frame.f_locals.get("proc")
            return java
    return None


def children() -> list[int]:
    """The processes that this one has started, where the system tells. The signal may come while Python starts the JVM:
    then no frame has it yet, and a command of the pipeline starts nothing else.
    """
    found = Path("/proc/self/task").glob("*/children")
    return [int(child) for listed in found for child in listed.read_text().split()]


def quietly_started(master: str | None) -> "SparkSession":
    from stoker.spark.starting import cache_directory, session

    print_progress("starting Spark ...")
    logging.disable()  # Spark handles SIGINT itself, and py4j would log a stack
    try:
        # else a table name in SQL makes a warehouse in the user's directory
        warehouse = cache_directory() / "warehouse"
        started = session(master, name="stoker pipeline", settings={"spark.sql.warehouse.dir": warehouse.as_uri()})
    finally:
        logging.disable(logging.NOTSET)
    if signal.getsignal(signal.SIGTERM) is raised:
        signal.signal(signal.SIGINT, raised)
    started.sparkContext.setLogLevel("FATAL")  # errors are raised and printed once, by `in_plain_words`
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
    return started


@contextmanager
def in_plain_words() -> Iterator[None]:
    """Replace Spark's stacks by a readable error; if Stoker's own error is the cause, by that one."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from stoker.spark.error_text import error_text, ours

    try:
        yield
    except (PySparkException, Py4JError) as error:
        own = ours(error)
        raise SparkFailed(f"Spark cannot do this: {error_text(error)}" if own is None else by_flags(own)) from None


FLAGS = {
    "option payloadSchema": "--payload-schema",
    "option tenant": "--tenant",
    "Set failOnDataLoss = false": "Say --allow-loss",
    "set failOnDataLoss = false": "say --allow-loss",
    "begin anew with startingOffsets = earliest (a stream: and a new checkpoint)": "begin another lake",
    "Read it with a new checkpoint": "Begin another lake",
}
"""The names of options in a program, with the flags of the command line."""


def print_progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(text, err=True)


# --- how Spark reaches the queue ----------------------------------------------------------------------

MASTER = click.option(
    "--master", help="Where Spark runs: local[2], spark://host:7077. [default: this machine, all cores]"
)


def options_for(url: str | None, tenant: str) -> dict[str, str]:
    """Options with which executors reach the queue. A relative path becomes absolute: executors have another
    directory.
    """
    from stoker.brokers.connect import DEFAULT_URL
    from stoker.cli.parameters import directory_of

    given = url or DEFAULT_URL
    if given.startswith("memory:"):
        raise InvalidRequest(
            f"{given} lives in one process, and Spark runs in others: use a data directory or a server"
        )
    directory = directory_of(given)
    if directory is not None:
        given = f"sqlite:///{Path(directory).resolve()}"
    token = click.get_current_context().meta.get(TOKEN)
    return {"url": given, "tenant": tenant} | ({"token": token} if token else {})


def check(options: dict[str, str]) -> None:
    """Check the options as the source would, before Spark starts, and name them as flags."""
    from stoker.spark.options import read_options

    try:
        read_options(options)
    except InvalidRequest as error:
        raise click.UsageError(by_flags(error.message), click.get_current_context()) from None


def by_flags(message: str) -> str:
    """An error of the source, with the flags of the command line."""
    for option, flag in FLAGS.items():
        message = message.replace(option, flag)
    return message
