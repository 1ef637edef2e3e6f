"""Records of jobs: they come in, are handed to workers, end, and are forgotten."""

from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.records.records.shape import Record, Run

# --- before they start ---------------------------------------------------------------------------


class Pushed(Record, frozen=True, gc=False, tag=1):
    """Jobs with neighbouring ids came in. `due` is 0 for jobs that are not delayed."""

    at: int
    tenant: str
    queue: str
    first: int
    payloads: tuple[bytes, ...]
    options: Options = DEFAULT_OPTIONS
    due: int = 0
    sizes: int | list[int] | None = None
    """How long the payloads are, each or all; None = count them."""


class Unblocked(Record, frozen=True, gc=False, tag=15):
    """An edge was settled well: `job` no longer waits for `dependency`. `ready` when it was the last one."""

    at: int
    tenant: str
    queue: str
    job: int
    dependency: int
    ready: bool
    due: int = 0


class BecameDue(Record, frozen=True, gc=False, tag=16):
    """Delayed jobs wait now; `promoted` when somebody asked for it."""

    at: int
    tenant: str
    queue: str
    runs: list[tuple[int, int]]
    promoted: bool = False


class Delayed(Record, frozen=True, gc=False, tag=17):
    """A waiting or delayed job was moved to another time (0 = it waits)."""

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
    """None = as the payload before."""


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
    runs: tuple[Run, ...]


class Extended(Record, frozen=True, gc=False, tag=10):
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
    """Deliveries were acknowledged. `results` has an entry for each job, or is None."""

    at: int
    tenant: str
    queue: str
    runs: tuple[Run, ...]
    results: list[bytes | None] | None = None
    codec: int = 0
    """How all of the results are written: a place in `CODECS`."""


class Retrying(Record, frozen=True, gc=False, tag=6):
    """A delivery failed and the job will be tried again at `due` (0 = it waits already)."""

    at: int
    tenant: str
    queue: str
    run: Run
    reason: str
    due: int
    error: str = ""
    error_class: str = ""
    stack: str = ""


class Failed(Record, frozen=True, gc=False, tag=7):
    """A job will not be tried again. `started_at` in the run is 0 when no delivery ended with it."""

    at: int
    tenant: str
    queue: str
    run: Run
    reason: str
    error: str = ""
    error_class: str = ""
    stack: str = ""
    delivery: str = ""
    """The reason of the last delivery's failure, when one ended with the job."""


class Released(Record, frozen=True, gc=False, tag=9):
    """Deliveries were handed back: the attempts do not count. `due` is 0 for jobs that wait again."""

    at: int
    tenant: str
    queue: str
    runs: list[Run]
    due: int = 0
    note: str = ""
    """Why, in words."""


class ClaimForgotten(Record, frozen=True, gc=False, tag=32):
    at: int
    tenant: str
    claim: str


# --- over ----------------------------------------------------------------------------------------


class Ended(Record, frozen=True, gc=False, tag=8):
    """Jobs were cancelled or expired."""

    at: int
    tenant: str
    queue: str
    state: int
    reason: str
    runs: list[Run]


class Removed(Record, frozen=True, gc=False, tag=25):
    """Retained jobs were cleaned away."""

    at: int
    tenant: str
    queue: str
    runs: list[tuple[int, int]]


class AgedOut(Record, frozen=True, gc=False, tag=26):
    """The retention of ended jobs with this policy has passed for those that ended `age_ms` before `at`."""

    at: int
    tenant: str
    queue: str
    age_ms: int
    count: int
