"""Records of jobs: they are pushed, delivered to workers, ended and forgotten."""

from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.records.records.shape import JobRun, Record

# --- before they start ---------------------------------------------------------------------------


class JobsPushed(Record, frozen=True, gc=False, tag=1):
    """Jobs with neighbouring ids were pushed. `due` is 0 for jobs that are not delayed."""

    at: int
    tenant: str
    queue: str
    first: int
    payloads: tuple[bytes, ...]
    options: Options = DEFAULT_OPTIONS
    due: int = 0
    sizes: int | list[int] | None = None
    """The size of each payload, or one number for all; None = count them."""


class Unblocked(Record, frozen=True, gc=False, tag=15):
    """`job` no longer waits for `dependency`. `ready` is true if that was the last one."""

    at: int
    tenant: str
    queue: str
    job: int
    dependency: int
    ready: bool
    due: int = 0


class BecameDue(Record, frozen=True, gc=False, tag=16):
    """Delayed jobs became waiting. `promoted`: a client asked for it, before they were due."""

    at: int
    tenant: str
    queue: str
    runs: list[tuple[int, int]]
    promoted: bool = False


class Delayed(Record, frozen=True, gc=False, tag=17):
    """A waiting or delayed job was moved to another time; 0 = it is waiting now."""

    at: int
    tenant: str
    queue: str
    job: int
    due: int


class Reprioritised(Record, frozen=True, gc=False, tag=18):
    at: int
    tenant: str
    queue: str
    job: int
    priority: int


class PayloadUpdated(Record, frozen=True, gc=False, tag=19):
    at: int
    tenant: str
    queue: str
    job: int
    payload: bytes
    codec: int | None = None
    """None = the codec does not change."""


class CancelRequested(Record, frozen=True, gc=False, tag=11):
    at: int
    tenant: str
    queue: str
    job: int


# --- in a worker's hands -------------------------------------------------------------------------


class Started(Record, frozen=True, gc=False, tag=4):
    """A pull took jobs of one queue."""

    at: int
    tenant: str
    queue: str
    token: int
    worker: str
    lease_ms: int | None
    claim: str | None
    runs: tuple[JobRun, ...]


class LeasesExtended(Record, frozen=True, gc=False, tag=10):
    at: int
    tenant: str
    queue: str
    runs: list[tuple[int, int]]
    lease_ms: int | None = None


class Progressed(Record, frozen=True, gc=False, tag=12):
    at: int
    tenant: str
    queue: str
    job: int
    percent: int
    message: str = ""


class Logged(Record, frozen=True, gc=False, tag=13):
    at: int
    tenant: str
    queue: str
    job: int
    level: str
    message: str


class PartialAdded(Record, frozen=True, gc=False, tag=14):
    at: int
    tenant: str
    queue: str
    job: int
    index: int
    data: bytes
    codec: int = 0


class Completed(Record, frozen=True, gc=False, tag=5):
    """Deliveries were acknowledged. `results` is None or has an entry for each job."""

    at: int
    tenant: str
    queue: str
    runs: tuple[JobRun, ...]
    results: list[bytes | None] | None = None
    codec: int = 0
    """The codec of all results, as an index into `CODECS`."""


class Retrying(Record, frozen=True, gc=False, tag=6):
    """A delivery failed, and the job will be tried again at `due`; 0 = it is waiting already."""

    at: int
    tenant: str
    queue: str
    run: JobRun
    reason: str
    due: int
    error: str = ""
    error_class: str = ""
    stack: str = ""


class JobDied(Record, frozen=True, gc=False, tag=7):
    """A job will not be tried again. `started_at` in the run is 0 if no delivery ended with it."""

    at: int
    tenant: str
    queue: str
    run: JobRun
    reason: str
    error: str = ""
    error_class: str = ""
    stack: str = ""
    delivery: str = ""
    """Why the last delivery failed, if one ended with the job."""
    removed: bool = False
    """Whether the job is gone, and no dead letter, because its options say so."""


class JobsReleased(Record, frozen=True, gc=False, tag=9):
    """Deliveries were handed back, and the attempts do not count. `due` is 0 for jobs that are waiting again."""

    at: int
    tenant: str
    queue: str
    runs: list[JobRun]
    due: int = 0
    note: str = ""
    """Why, in words."""


class ClaimForgotten(Record, frozen=True, gc=False, tag=32):
    at: int
    tenant: str
    claim: str


# --- over ----------------------------------------------------------------------------------------


class JobsEnded(Record, frozen=True, gc=False, tag=8):
    """Jobs were cancelled or expired."""

    at: int
    tenant: str
    queue: str
    state: int
    reason: str
    runs: list[JobRun]
    error: str = ""
    """The worker's error, if it failed a delivery whose job was to be cancelled."""
    error_class: str = ""


class Removed(Record, frozen=True, gc=False, tag=25):
    """Retained jobs were removed by Clean."""

    at: int
    tenant: str
    queue: str
    runs: list[tuple[int, int]]


class AgedOut(Record, frozen=True, gc=False, tag=26):
    """Ended jobs with this retention policy were forgotten, if they ended at least `age_ms` before `at`."""

    at: int
    tenant: str
    queue: str
    age_ms: int
    count: int
