"""`stoker push` and `stoker pull`: push and pull jobs by hand and from scripts."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exit_codes
from stoker.cli.parameters import (
    DURATION,
    as_json,
    connected,
    echo_json,
    examples,
    open_client,
    queue_names,
    tell_if_new,
)
from stoker.cli.payloads import text_of, value_of

if TYPE_CHECKING:
    from stoker import Client, Options
    from stoker.model.replies import DeliveredJob, Delivery

LINES_AT_ONCE = 1_000
"""Jobs in one batch: large enough to be quick, small enough to see it move."""


# --- push --------------------------------------------------------------------------------------------


@click.command(
    epilog=examples(
        'stoker push mail \'{"to": "ada"}\'',
        "stoker push mail '{\"user_id\": 7}' --name welcome --delay 5m --max-attempts 8",
        "stoker push rows - --lines < rows.jsonl",
    ),
)
@click.argument("queue", shell_complete=queue_names)
@click.argument("data", required=False)
@click.option("--file", "file", type=click.File("rb"), help="Read the data from this file; - is standard input.")
@click.option("--raw", is_flag=True, help="Take the data as bytes; they need not be JSON.")
@click.option("--lines", is_flag=True, help="Push a job for each line of the data.")
@click.option("--name", help="The job's name, which selects the handler in a worker.")
@click.option("--priority", type=int, help="Higher numbers run first. [default: 0]")
@click.option("--delay", "delay_ms", type=DURATION, help="Do not start the job before this time has passed: 30s, 5m.")
@click.option("--ttl", "ttl_ms", type=DURATION, help="Expire the job if it has not started within this time.")
@click.option("--timeout", "timeout_ms", type=DURATION, help="Fail an attempt that runs longer than this.")
@click.option("--max-attempts", type=int, help="How many attempts the job has; 0 is without limit.")
@click.option("--unique-key", help="At most one live job of the queue has this key.")
@click.option("--custom-id", help="Your own id: a second push with it returns the first job.")
@click.option("--group", "group_id", help="Jobs of a group run one at a time, in push order.")
@click.option("--tag", "tags", multiple=True, help="A label to find the job by. May be repeated.")
@click.option(
    "-o",
    "--option",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any other option by its name, with a JSON or text value: -o lifo=true. May be repeated.",
)
@click.option("--durability", type=click.Choice(["memory", "commit", "fsync"]), help="What the reply waits for.")
@connected
@as_json
def push(
    queue: str,
    data: str | None,
    file: Any,
    raw: bool,
    lines: bool,
    pairs: tuple[str, ...],
    durability: Any,
    url: str | None,
    tenant: str,
    is_json: bool,
    **named: Any,
) -> int:
    """Push DATA, a JSON text, to QUEUE and print the new job's id. DATA may be - for standard input.

    With --lines and --json it prints one JSON document per line, one for each job.
    """
    options = options_from(named, pairs, raw)
    if (data is None) == (file is None):
        raise click.UsageError("the data are missing: give either DATA or --file, - for standard input")
    source = sys.stdin.buffer if data == "-" else file
    if lines:
        payloads = lines_of(data.encode().splitlines() if source is None and data is not None else source, raw)
        with open_client(url, tenant) as client:
            return push_lines(client, queue, payloads, options, durability, is_json)
    payload = data.encode() if source is None and data is not None else source.read()
    if not raw:
        check_json(payload)
    with open_client(url, tenant) as client:
        reply = client.push(queue, payload, options, durability=durability)
    if is_json:
        echo_json(reply)
    else:
        click.echo(reply.id)
    return exit_codes.OK


def push_lines(
    client: "Client", queue: str, payloads: Iterator[bytes], options: "Options", durability: Any, is_json: bool
) -> int:
    """Push in batches. A refused line does not affect the others; the exit code says that there was one."""
    from stoker.cli.progress import counting

    number, is_refused = 0, False
    with counting("pushing", None, is_wanted=not sys.stdout.isatty()) as moved:
        while batch := list(islice(payloads, LINES_AT_ONCE)):
            reply = client.push_batch(queue, batch, options, durability=durability)
            for place, job in enumerate(reply.ids):
                refusal = reply.refused.get(place)
                if refusal is not None:
                    is_refused = True
                    exit_codes.tell(f"line {number + place + 1}: {refusal.message}", refusal.code)
                elif is_json:
                    echo_json({"id": job, "created": place not in reply.duplicates, "level": reply.level})
                else:
                    click.echo(job)
            number += len(batch)
            moved(number)
    return exit_codes.REFUSED if is_refused else exit_codes.OK


def lines_of(source: Iterable[bytes], raw: bool) -> Iterator[bytes]:
    """One job for each line; empty lines are skipped."""
    for number, line in enumerate(source, 1):
        line = line.rstrip(b"\r\n")
        if line.strip():
            if not raw:
                check_json(line, f"line {number}: ")
            yield line


def check_json(payload: bytes, where: str = "") -> None:
    import msgspec

    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise click.UsageError(
            f"{where}the data are not JSON: {error}; text needs quotes of its own, as in '\"hello\"', and --raw takes"
            " any bytes"
        ) from None


def options_from(named: dict[str, Any], pairs: Sequence[str], raw: bool) -> "Options":
    """The given options; others keep their defaults."""
    import msgspec

    from stoker import Options

    known = {field.name for field in msgspec.structs.fields(Options)}
    given = {name: value for name, value in named.items() if value not in (None, ())}
    if not raw:
        given["codec"] = "json"
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in known:
            raise click.BadParameter(
                f"{pair!r}: expected NAME=VALUE, NAME one of {', '.join(sorted(known))}", param_hint="--option"
            )
        try:
            given[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            given[name] = text
    try:
        return msgspec.convert({name: value for name, value in given.items() if name in known}, Options)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"these options are not valid: {error}") from None


# --- pull --------------------------------------------------------------------------------------------


@click.command(
    epilog=examples("stoker pull mail --ack", "stoker pull mail --count 100 --wait 30s --json"),
)
@click.argument("queue", shell_complete=queue_names)
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How many jobs at most.")
@click.option(
    "--wait",
    "wait_ms",
    type=DURATION,
    default=0,
    help="Wait this long for a job, for example 30s. [default: do not wait]",
)
@click.option("--ack", is_flag=True, help="Acknowledge the jobs as soon as they are printed.")
@click.option("--lease", "lease_ms", type=DURATION, help="How long the lease lasts. [default: as the jobs were pushed]")
@click.option("--worker", default="stoker pull", show_default=True, help="The worker's name in lists and logs.")
@connected
@as_json
def pull(
    queue: str,
    count: int,
    wait_ms: int,
    ack: bool,
    lease_ms: int | None,
    worker: str,
    url: str | None,
    tenant: str,
    is_json: bool,
) -> int:
    """Take jobs from QUEUE and print each with its id and its data.

    Without --ack they stay leased, and go to another worker when the lease has ended. Exits with 5 if there was none.
    """
    with open_client(url, tenant) as client:
        delivery = client.pull(queue, count, wait_ms=wait_ms, worker=worker, lease_ms=lease_ms)
        if is_json:
            echo_json([as_shown(job) for job in delivery])
        else:
            for job in delivery:
                click.echo(b"%d\t%s" % (job.id, text_of(job.payload, codec_of(job))))
        sys.stdout.flush()  # the reader must have the job before the ack is sent
        if not len(delivery):
            if sys.stderr.isatty():  # scripts look at the exit code
                click.echo(f"no job of {queue} is ready", err=True)
                tell_if_new(client, queue)
            return exit_codes.NOTHING
        if not ack:
            say_leased(delivery)
            return exit_codes.OK
        refused = client.ack_batch(delivery.ids, delivery.token).refused
    for job_id, code in refused.items():
        exit_codes.tell(f"job {job_id} could not be acknowledged", code)
    return exit_codes.REFUSED if refused else exit_codes.OK


def say_leased(delivery: "Delivery") -> None:
    until = datetime.fromtimestamp(delivery.runs[0].lease_until / 1_000).strftime("%H:%M:%S")
    click.echo(f"{len(delivery)} leased until {until} with token {delivery.token}, not acknowledged", err=True)


def as_shown(job: "DeliveredJob") -> dict[str, Any]:
    return {
        "id": job.id,
        "token": job.token,
        "queue": job.queue,
        "name": job.options.name,
        "data": value_of(job.payload, codec_of(job)),
        "attempt": job.attempt,
        "pushed_at": job.pushed_at,
        "lease_until": job.lease_until,
    }


def codec_of(job: "DeliveredJob") -> str:
    return getattr(job.options, "codec", "bytes")
