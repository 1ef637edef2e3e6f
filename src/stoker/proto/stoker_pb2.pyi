from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("body",)
    BODY_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    def __init__(self, body: _Optional[bytes] = ...) -> None: ...

class Backoff(_message.Message):
    __slots__ = ("kind", "base_ms", "cap_ms", "jitter")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BASE_MS_FIELD_NUMBER: _ClassVar[int]
    CAP_MS_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    kind: str
    base_ms: int
    cap_ms: int
    jitter: str
    def __init__(self, kind: _Optional[str] = ..., base_ms: _Optional[int] = ..., cap_ms: _Optional[int] = ..., jitter: _Optional[str] = ...) -> None: ...

class Dependency(_message.Message):
    __slots__ = ("id", "on_failure", "item")
    ID_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    id: int
    on_failure: str
    item: int
    def __init__(self, id: _Optional[int] = ..., on_failure: _Optional[str] = ..., item: _Optional[int] = ...) -> None: ...

class Options(_message.Message):
    __slots__ = ("priority", "delay_ms", "run_at", "ttl_ms", "timeout_ms", "lease_ms", "max_attempts", "max_crashes", "backoff", "unique_key", "unique_ttl_ms", "on_conflict", "custom_id", "custom_id_ttl_ms", "debounce_id", "debounce_ms", "depends_on", "group_id", "lifo", "tags", "remove_on_complete", "remove_on_fail", "keep_completed_age_ms", "keep_completed_count", "trace", "parent_id", "codec", "name", "workflow", "schedule", "slot", "log_lines_max", "stack_lines_max")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_CRASHES_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    ON_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_ID_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_ID_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    DEBOUNCE_ID_FIELD_NUMBER: _ClassVar[int]
    DEBOUNCE_MS_FIELD_NUMBER: _ClassVar[int]
    DEPENDS_ON_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    LIFO_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_ON_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_ON_FAIL_FIELD_NUMBER: _ClassVar[int]
    KEEP_COMPLETED_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    KEEP_COMPLETED_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    LOG_LINES_MAX_FIELD_NUMBER: _ClassVar[int]
    STACK_LINES_MAX_FIELD_NUMBER: _ClassVar[int]
    priority: int
    delay_ms: int
    run_at: int
    ttl_ms: int
    timeout_ms: int
    lease_ms: int
    max_attempts: int
    max_crashes: int
    backoff: Backoff
    unique_key: str
    unique_ttl_ms: int
    on_conflict: str
    custom_id: str
    custom_id_ttl_ms: int
    debounce_id: str
    debounce_ms: int
    depends_on: _containers.RepeatedCompositeFieldContainer[Dependency]
    group_id: str
    lifo: bool
    tags: _containers.RepeatedScalarFieldContainer[str]
    remove_on_complete: bool
    remove_on_fail: bool
    keep_completed_age_ms: int
    keep_completed_count: int
    trace: str
    parent_id: int
    codec: str
    name: str
    workflow: int
    schedule: str
    slot: int
    log_lines_max: int
    stack_lines_max: int
    def __init__(self, priority: _Optional[int] = ..., delay_ms: _Optional[int] = ..., run_at: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., max_crashes: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., unique_key: _Optional[str] = ..., unique_ttl_ms: _Optional[int] = ..., on_conflict: _Optional[str] = ..., custom_id: _Optional[str] = ..., custom_id_ttl_ms: _Optional[int] = ..., debounce_id: _Optional[str] = ..., debounce_ms: _Optional[int] = ..., depends_on: _Optional[_Iterable[_Union[Dependency, _Mapping]]] = ..., group_id: _Optional[str] = ..., lifo: _Optional[bool] = ..., tags: _Optional[_Iterable[str]] = ..., remove_on_complete: _Optional[bool] = ..., remove_on_fail: _Optional[bool] = ..., keep_completed_age_ms: _Optional[int] = ..., keep_completed_count: _Optional[int] = ..., trace: _Optional[str] = ..., parent_id: _Optional[int] = ..., codec: _Optional[str] = ..., name: _Optional[str] = ..., workflow: _Optional[int] = ..., schedule: _Optional[str] = ..., slot: _Optional[int] = ..., log_lines_max: _Optional[int] = ..., stack_lines_max: _Optional[int] = ...) -> None: ...

class IdRange(_message.Message):
    __slots__ = ("start", "count", "step")
    START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    start: int
    count: int
    step: int
    def __init__(self, start: _Optional[int] = ..., count: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class Ids(_message.Message):
    __slots__ = ("ranges", "list")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[IdRange]
    list: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ranges: _Optional[_Iterable[_Union[IdRange, _Mapping]]] = ..., list: _Optional[_Iterable[int]] = ...) -> None: ...

class PushRequest(_message.Message):
    __slots__ = ("queue", "payload", "options", "durability")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    payload: bytes
    options: Options
    durability: str
    def __init__(self, queue: _Optional[str] = ..., payload: _Optional[bytes] = ..., options: _Optional[_Union[Options, _Mapping]] = ..., durability: _Optional[str] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ("id", "created", "duplicate_by", "level")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_BY_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    id: int
    created: bool
    duplicate_by: str
    level: str
    def __init__(self, id: _Optional[int] = ..., created: _Optional[bool] = ..., duplicate_by: _Optional[str] = ..., level: _Optional[str] = ...) -> None: ...

class PushBatchRequest(_message.Message):
    __slots__ = ("queue", "payloads", "options", "each", "atomic", "request_key", "durability")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    EACH_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_KEY_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    options: Options
    each: _containers.RepeatedCompositeFieldContainer[Options]
    atomic: bool
    request_key: str
    durability: str
    def __init__(self, queue: _Optional[str] = ..., payloads: _Optional[_Iterable[bytes]] = ..., options: _Optional[_Union[Options, _Mapping]] = ..., each: _Optional[_Iterable[_Union[Options, _Mapping]]] = ..., atomic: _Optional[bool] = ..., request_key: _Optional[str] = ..., durability: _Optional[str] = ...) -> None: ...

class PushBatchReply(_message.Message):
    __slots__ = ("ids", "refused", "duplicates", "level")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: Refusal
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...
    class DuplicatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    IDS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ids: Ids
    refused: _containers.MessageMap[int, Refusal]
    duplicates: _containers.ScalarMap[int, str]
    level: str
    def __init__(self, ids: _Optional[_Union[Ids, _Mapping]] = ..., refused: _Optional[_Mapping[int, Refusal]] = ..., duplicates: _Optional[_Mapping[int, str]] = ..., level: _Optional[str] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("queues", "wait_ms", "worker", "lease_ms")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    wait_ms: int
    worker: str
    lease_ms: int
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., wait_ms: _Optional[int] = ..., worker: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class PullReply(_message.Message):
    __slots__ = ("job", "next_at")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NEXT_AT_FIELD_NUMBER: _ClassVar[int]
    job: Job
    next_at: int
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., next_at: _Optional[int] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "token", "queue", "payload", "options", "attempt", "pushed_at", "lease_until")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PUSHED_AT_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    id: int
    token: int
    queue: str
    payload: bytes
    options: Options
    attempt: int
    pushed_at: int
    lease_until: int
    def __init__(self, id: _Optional[int] = ..., token: _Optional[int] = ..., queue: _Optional[str] = ..., payload: _Optional[bytes] = ..., options: _Optional[_Union[Options, _Mapping]] = ..., attempt: _Optional[int] = ..., pushed_at: _Optional[int] = ..., lease_until: _Optional[int] = ...) -> None: ...

class PullBatchRequest(_message.Message):
    __slots__ = ("queues", "count", "wait_ms", "worker", "lease_ms", "claim")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    count: int
    wait_ms: int
    worker: str
    lease_ms: int
    claim: str
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., count: _Optional[int] = ..., wait_ms: _Optional[int] = ..., worker: _Optional[str] = ..., lease_ms: _Optional[int] = ..., claim: _Optional[str] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("token", "runs", "next_at")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AT_FIELD_NUMBER: _ClassVar[int]
    token: int
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    next_at: int
    def __init__(self, token: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., next_at: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("queue", "ids", "payloads", "options", "attempt", "pushed_at", "lease_until")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PUSHED_AT_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    queue: str
    ids: Ids
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    options: Options
    attempt: int
    pushed_at: int
    lease_until: int
    def __init__(self, queue: _Optional[str] = ..., ids: _Optional[_Union[Ids, _Mapping]] = ..., payloads: _Optional[_Iterable[bytes]] = ..., options: _Optional[_Union[Options, _Mapping]] = ..., attempt: _Optional[int] = ..., pushed_at: _Optional[int] = ..., lease_until: _Optional[int] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("id", "token", "result", "codec")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    id: int
    token: int
    result: bytes
    codec: str
    def __init__(self, id: _Optional[int] = ..., token: _Optional[int] = ..., result: _Optional[bytes] = ..., codec: _Optional[str] = ...) -> None: ...

class AckBatchRequest(_message.Message):
    __slots__ = ("ids", "tokens", "results", "codec")
    IDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    ids: Ids
    tokens: _containers.RepeatedScalarFieldContainer[int]
    results: _containers.RepeatedScalarFieldContainer[bytes]
    codec: str
    def __init__(self, ids: _Optional[_Union[Ids, _Mapping]] = ..., tokens: _Optional[_Iterable[int]] = ..., results: _Optional[_Iterable[bytes]] = ..., codec: _Optional[str] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("count", "refused", "level")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    count: int
    refused: _containers.ScalarMap[int, str]
    level: str
    def __init__(self, count: _Optional[int] = ..., refused: _Optional[_Mapping[int, str]] = ..., level: _Optional[str] = ...) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("ids", "tokens", "error", "error_class", "stack", "retry", "delay_ms", "reason")
    IDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ids: Ids
    tokens: _containers.RepeatedScalarFieldContainer[int]
    error: str
    error_class: str
    stack: str
    retry: bool
    delay_ms: int
    reason: str
    def __init__(self, ids: _Optional[_Union[Ids, _Mapping]] = ..., tokens: _Optional[_Iterable[int]] = ..., error: _Optional[str] = ..., error_class: _Optional[str] = ..., stack: _Optional[str] = ..., retry: _Optional[bool] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("jobs", "refused", "level")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    JOBS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[FailedJob]
    refused: _containers.ScalarMap[int, str]
    level: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[FailedJob, _Mapping]]] = ..., refused: _Optional[_Mapping[int, str]] = ..., level: _Optional[str] = ...) -> None: ...

class FailedJob(_message.Message):
    __slots__ = ("id", "state", "due")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    id: int
    state: str
    due: int
    def __init__(self, id: _Optional[int] = ..., state: _Optional[str] = ..., due: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("ids", "tokens", "delay_ms")
    IDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    ids: Ids
    tokens: _containers.RepeatedScalarFieldContainer[int]
    delay_ms: int
    def __init__(self, ids: _Optional[_Union[Ids, _Mapping]] = ..., tokens: _Optional[_Iterable[int]] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("ids", "tokens", "lease_ms")
    IDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    ids: Ids
    tokens: _containers.RepeatedScalarFieldContainer[int]
    lease_ms: int
    def __init__(self, ids: _Optional[_Union[Ids, _Mapping]] = ..., tokens: _Optional[_Iterable[int]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class Extended(_message.Message):
    __slots__ = ("count", "lease_until", "refused", "cancelled")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    count: int
    lease_until: int
    refused: _containers.ScalarMap[int, str]
    cancelled: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, count: _Optional[int] = ..., lease_until: _Optional[int] = ..., refused: _Optional[_Mapping[int, str]] = ..., cancelled: _Optional[_Iterable[int]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("percent", "message")
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    percent: int
    message: str
    def __init__(self, percent: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("attempt", "started_at", "ended_at", "reason", "worker", "error", "error_class")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    started_at: int
    ended_at: int
    reason: str
    worker: str
    error: str
    error_class: str
    def __init__(self, attempt: _Optional[int] = ..., started_at: _Optional[int] = ..., ended_at: _Optional[int] = ..., reason: _Optional[str] = ..., worker: _Optional[str] = ..., error: _Optional[str] = ..., error_class: _Optional[str] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("reason", "entered_at", "expires_at", "retry_count", "next_retry_at")
    REASON_FIELD_NUMBER: _ClassVar[int]
    ENTERED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_RETRY_AT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    entered_at: int
    expires_at: int
    retry_count: int
    next_retry_at: int
    def __init__(self, reason: _Optional[str] = ..., entered_at: _Optional[int] = ..., expires_at: _Optional[int] = ..., retry_count: _Optional[int] = ..., next_retry_at: _Optional[int] = ...) -> None: ...

class JobView(_message.Message):
    __slots__ = ("id", "queue", "state", "payload", "options", "pushed_at", "attempts", "crashes", "due", "blocked_by", "started_at", "lease_until", "worker", "claim", "cancel_requested", "finished_at", "result", "reason", "error", "stack", "progress", "history", "dead", "result_codec", "error_class", "heartbeat_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PUSHED_AT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CRASHES_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_BY_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    RESULT_CODEC_FIELD_NUMBER: _ClassVar[int]
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AT_FIELD_NUMBER: _ClassVar[int]
    id: int
    queue: str
    state: str
    payload: bytes
    options: Options
    pushed_at: int
    attempts: int
    crashes: int
    due: int
    blocked_by: _containers.RepeatedScalarFieldContainer[int]
    started_at: int
    lease_until: int
    worker: str
    claim: str
    cancel_requested: bool
    finished_at: int
    result: bytes
    reason: str
    error: str
    stack: str
    progress: Progress
    history: _containers.RepeatedCompositeFieldContainer[Attempt]
    dead: DeadLetter
    result_codec: str
    error_class: str
    heartbeat_at: int
    def __init__(self, id: _Optional[int] = ..., queue: _Optional[str] = ..., state: _Optional[str] = ..., payload: _Optional[bytes] = ..., options: _Optional[_Union[Options, _Mapping]] = ..., pushed_at: _Optional[int] = ..., attempts: _Optional[int] = ..., crashes: _Optional[int] = ..., due: _Optional[int] = ..., blocked_by: _Optional[_Iterable[int]] = ..., started_at: _Optional[int] = ..., lease_until: _Optional[int] = ..., worker: _Optional[str] = ..., claim: _Optional[str] = ..., cancel_requested: _Optional[bool] = ..., finished_at: _Optional[int] = ..., result: _Optional[bytes] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., stack: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., history: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., dead: _Optional[_Union[DeadLetter, _Mapping]] = ..., result_codec: _Optional[str] = ..., error_class: _Optional[str] = ..., heartbeat_at: _Optional[int] = ...) -> None: ...

class GetStateRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class GetStateReply(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: str
    def __init__(self, state: _Optional[str] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class Counts(_message.Message):
    __slots__ = ("waiting", "delayed", "blocked", "active", "completed", "failed", "cancelled", "expired")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    delayed: int
    blocked: int
    active: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    def __init__(self, waiting: _Optional[int] = ..., delayed: _Optional[int] = ..., blocked: _Optional[int] = ..., active: _Optional[int] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., cancelled: _Optional[int] = ..., expired: _Optional[int] = ...) -> None: ...

class Totals(_message.Message):
    __slots__ = ("pushed", "started", "completed", "failed", "cancelled", "expired", "retried", "timed_out", "stalled", "evicted", "wait_ms_sum", "run_ms_sum")
    PUSHED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    RETRIED_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_SUM_FIELD_NUMBER: _ClassVar[int]
    RUN_MS_SUM_FIELD_NUMBER: _ClassVar[int]
    pushed: int
    started: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    retried: int
    timed_out: int
    stalled: int
    evicted: int
    wait_ms_sum: int
    run_ms_sum: int
    def __init__(self, pushed: _Optional[int] = ..., started: _Optional[int] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., cancelled: _Optional[int] = ..., expired: _Optional[int] = ..., retried: _Optional[int] = ..., timed_out: _Optional[int] = ..., stalled: _Optional[int] = ..., evicted: _Optional[int] = ..., wait_ms_sum: _Optional[int] = ..., run_ms_sum: _Optional[int] = ...) -> None: ...

class StatsReply(_message.Message):
    __slots__ = ("counts", "totals", "completed_last_minute", "payload_bytes")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_LAST_MINUTE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    counts: Counts
    totals: Totals
    completed_last_minute: int
    payload_bytes: int
    def __init__(self, counts: _Optional[_Union[Counts, _Mapping]] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., completed_last_minute: _Optional[int] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class StreamJobsRequest(_message.Message):
    __slots__ = ("queues", "credit", "worker", "lease_ms", "batch_max")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    BATCH_MAX_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    credit: int
    worker: str
    lease_ms: int
    batch_max: int
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., credit: _Optional[int] = ..., worker: _Optional[str] = ..., lease_ms: _Optional[int] = ..., batch_max: _Optional[int] = ...) -> None: ...

class StreamJobsReply(_message.Message):
    __slots__ = ("opened", "delivery")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    delivery: Delivery
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., delivery: _Optional[_Union[Delivery, _Mapping]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: str
    def __init__(self, stream: _Optional[str] = ...) -> None: ...

class GrantCreditRequest(_message.Message):
    __slots__ = ("stream", "credit")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    stream: str
    credit: int
    def __init__(self, stream: _Optional[str] = ..., credit: _Optional[int] = ...) -> None: ...

class GrantCreditReply(_message.Message):
    __slots__ = ("credit",)
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    credit: int
    def __init__(self, credit: _Optional[int] = ...) -> None: ...

class ProcessJobsRequest(_message.Message):
    __slots__ = ("open", "result", "acks", "credit", "extend")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    open: StreamJobsRequest
    result: Result
    acks: AckBatchRequest
    credit: Credit
    extend: ExtendRequest
    def __init__(self, open: _Optional[_Union[StreamJobsRequest, _Mapping]] = ..., result: _Optional[_Union[Result, _Mapping]] = ..., acks: _Optional[_Union[AckBatchRequest, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., extend: _Optional[_Union[ExtendRequest, _Mapping]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("credit",)
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    credit: int
    def __init__(self, credit: _Optional[int] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("id", "token", "done", "failure", "handback")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    HANDBACK_FIELD_NUMBER: _ClassVar[int]
    id: int
    token: int
    done: Done
    failure: Failure
    handback: Handback
    def __init__(self, id: _Optional[int] = ..., token: _Optional[int] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., handback: _Optional[_Union[Handback, _Mapping]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("result", "codec")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    codec: str
    def __init__(self, result: _Optional[bytes] = ..., codec: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("error", "error_class", "stack", "retry", "delay_ms", "reason")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    error: str
    error_class: str
    stack: str
    retry: bool
    delay_ms: int
    reason: str
    def __init__(self, error: _Optional[str] = ..., error_class: _Optional[str] = ..., stack: _Optional[str] = ..., retry: _Optional[bool] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Handback(_message.Message):
    __slots__ = ("delay_ms",)
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    delay_ms: int
    def __init__(self, delay_ms: _Optional[int] = ...) -> None: ...

class ProcessJobsReply(_message.Message):
    __slots__ = ("opened", "delivery", "settled", "extended", "refused", "ending")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    EXTENDED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    delivery: Delivery
    settled: Settled
    extended: Extended
    refused: Refusal
    ending: Refusal
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., delivery: _Optional[_Union[Delivery, _Mapping]] = ..., settled: _Optional[_Union[Settled, _Mapping]] = ..., extended: _Optional[_Union[Extended, _Mapping]] = ..., refused: _Optional[_Union[Refusal, _Mapping]] = ..., ending: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class ErrorInfo(_message.Message):
    __slots__ = ("reason", "domain", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    reason: str
    domain: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[str] = ..., domain: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...
