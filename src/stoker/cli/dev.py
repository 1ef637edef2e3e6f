"""`stoker dev`: everything that an application needs during development, in one terminal.

It runs `stoker serve` over the data directory and `stoker worker`, each in its own process, and restarts the worker
when the code changes. Both are the normal commands, so everything works in production as it does here.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from stoker.cli import exit_codes
from stoker.cli.parameters import directory_of, examples

SERVER_S = 30.0
"""How long the server may take to say where it listens, or to end."""
STOP_S = 15.0


@click.command(
    epilog=examples("stoker dev shop.jobs:app", "stoker dev shop.jobs:app --watch shop --no-server"),
)
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--url",
    envvar="STOKER_URL",
    show_envvar=True,
    help="The queue. A data directory is served here; a server at this URL is used as it is. [default: the app's own]",
)
@click.option("--no-server", is_flag=True, help="Run only the worker. Other programs can open the same data directory.")
@click.option("--tcp", metavar="HOST:PORT|off", help="The server's TCP address. [default: 127.0.0.1:6789]")
@click.option("--http", metavar="HOST:PORT|off", help="The server's HTTP address. [default: 127.0.0.1:6790]")
@click.option("--grpc", metavar="HOST:PORT|off", default="off", show_default=True, help="The server's gRPC address.")
@click.option("--concurrency", type=click.IntRange(1), help="Jobs at once. [default: the worker's default]")
@click.option(
    "--watch",
    "roots",
    multiple=True,
    help="Restart when Python files below this path change. May be repeated. [default: this directory]",
)
def dev(
    target: str,
    url: str | None,
    no_server: bool,
    tcp: str | None,
    http: str | None,
    grpc: str,
    concurrency: int | None,
    roots: Sequence[str],
) -> int:
    """Run a server and a worker for MODULE:APP, and restart the worker when the code changes.

    Ctrl-C lets running jobs end and stops both; a second one does not wait.
    """
    from stoker.server.packages import lacking
    from stoker.worker.reload import Reloader

    url = url or url_of(target)
    if url.startswith("memory:"):
        raise click.UsageError("memory:// belongs to one process, and stoker dev runs several: use sqlite:///DIRECTORY")
    missing = [root for root in roots if not Path(root).exists()]
    if missing:
        raise click.UsageError(f"there is no {missing[0]!r} to watch")
    directory = directory_of(url)
    server = None
    lacks = lacking("http")
    if directory is not None and not no_server and not lacks:
        server = DevServer(directory, {"--tcp": tcp, "--http": http, "--grpc": grpc})
    worker = [sys.executable, "-m", "stoker.cli.main", "worker", target, "--url", url]
    if concurrency is not None:
        worker += ["--concurrency", str(concurrency)]
    reloader = Reloader(worker, list(roots) or ["."], say)
    try:
        introduce(target, url, roots)
        if lacks and not no_server and directory is not None:
            say(f"no server: {lacks} is not installed (pip install 'stoker[server]'); the worker runs without one")
        if server is not None:
            server.start(reloader.stop)
        return reloader.run() or (exit_codes.FAILED if server is not None and server.has_failed else exit_codes.OK)
    finally:
        if server is not None:
            server.stop()


def url_of(target: str) -> str:
    """The app's own URL. Asked in another process, since the code may be broken."""
    from stoker.brokers.connect import DEFAULT_URL

    asked = f"from stoker.app.loading import load_app; print(load_app({target!r}).url or '')"
    try:
        done = subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, check=False, timeout=SERVER_S
        )
    except subprocess.TimeoutExpired:
        return DEFAULT_URL
    lines = done.stdout.split() if done.returncode == 0 else []
    return lines[-1] if lines else DEFAULT_URL


def introduce(target: str, url: str, roots: Sequence[str]) -> None:
    pairs = [
        ("app", target),
        ("queue", url),
        ("watching", ", ".join(roots) or str(Path.cwd())),
        ("look", f"stoker top{'' if url == 'sqlite:///stoker.db' else f' --url {url}'}"),
    ]
    click.echo(click.style("stoker dev", bold=True) + "  Ctrl-C stops it", err=True)
    for name, value in pairs:
        click.echo(f"  {click.style(f'{name:<9}', dim=True)} {value}", err=True)


def say(text: str, who: str = "dev") -> None:
    for line in text.splitlines():
        click.echo(f"{click.style(f'{who:<6}', fg='cyan')}  {line}", err=True)


class DevServer:
    """`stoker serve` in its own process."""

    def __init__(self, directory: str, listeners: dict[str, str | None]) -> None:
        self._command = [sys.executable, "-m", "stoker.cli.main", "serve", "--data", directory]
        for flag, where in listeners.items():
            self._command += [flag, where] if where is not None else []
        self._process: subprocess.Popen[str] | None = None
        self._stopping = False
        self.has_failed = False

    def start(self, lost: Callable[[], object]) -> None:
        """Start, and return when it serves. `lost` is called if it ends by itself later."""
        # Its own process group: Ctrl-C reaches only this process, which stops the worker first and then the server.
        process = self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, process_group=0, preexec_fn=_die_with_us
        )
        ready = threading.Event()
        threading.Thread(target=self._listen, args=(process, ready, lost), daemon=True).start()
        if not ready.wait(SERVER_S) or self.has_failed:
            self.stop()
            raise click.ClickException(
                "the server did not start: see its output above, or run without one: --no-server"
            )

    def _listen(self, process: subprocess.Popen[str], ready: threading.Event, lost: Callable[[], object]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            say(line.rstrip(), "server")
            ready.set()
        process.wait()
        if not self._stopping:
            self.has_failed = True
            say("the server ended by itself")
            lost()
        ready.set()

    def stop(self) -> None:
        self._stopping = True
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _die_with_us() -> None:
    from stoker.worker.parent_death import die_with_parent

    die_with_parent(signal.SIGTERM)
