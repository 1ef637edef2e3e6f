from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[JobState]
    WAITING: _ClassVar[JobState]
    DELAYED: _ClassVar[JobState]
    ACTIVE: _ClassVar[JobState]
    COMPLETED: _ClassVar[JobState]
    FAILED: _ClassVar[JobState]
    WAITING_CHILDREN: _ClassVar[JobState]
UNKNOWN: JobState
WAITING: JobState
DELAYED: JobState
ACTIVE: JobState
COMPLETED: JobState
FAILED: JobState
WAITING_CHILDREN: JobState

class PushRequest(_message.Message):
    __slots__ = ("queue", "data", "priority", "delay_ms", "ttl_ms", "timeout_ms", "max_attempts", "backoff_ms", "unique_key", "depends_on", "lifo")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    DEPENDS_ON_FIELD_NUMBER: _ClassVar[int]
    LIFO_FIELD_NUMBER: _ClassVar[int]
    queue: str
    data: bytes
    priority: int
    delay_ms: int
    ttl_ms: int
    timeout_ms: int
    max_attempts: int
    backoff_ms: int
    unique_key: str
    depends_on: _containers.RepeatedScalarFieldContainer[int]
    lifo: bool
    def __init__(self, queue: _Optional[str] = ..., data: _Optional[bytes] = ..., priority: _Optional[int] = ..., delay_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., backoff_ms: _Optional[int] = ..., unique_key: _Optional[str] = ..., depends_on: _Optional[_Iterable[int]] = ..., lifo: _Optional[bool] = ...) -> None: ...

class PushResponse(_message.Message):
    __slots__ = ("ok", "id")
    OK_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    id: int
    def __init__(self, ok: _Optional[bool] = ..., id: _Optional[int] = ...) -> None: ...

class PushBatchRequest(_message.Message):
    __slots__ = ("queue", "jobs")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    jobs: _containers.RepeatedCompositeFieldContainer[PushRequest]
    def __init__(self, queue: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[PushRequest, _Mapping]]] = ...) -> None: ...

class PushBatchResponse(_message.Message):
    __slots__ = ("ok", "ids")
    OK_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ok: _Optional[bool] = ..., ids: _Optional[_Iterable[int]] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class PullBatchRequest(_message.Message):
    __slots__ = ("queue", "count")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    count: int
    def __init__(self, queue: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class PullBatchResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "queue", "data", "priority", "created_at", "run_at", "started_at", "attempts", "max_attempts", "backoff_ms", "ttl_ms", "timeout_ms", "unique_key", "depends_on", "lifo")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    DEPENDS_ON_FIELD_NUMBER: _ClassVar[int]
    LIFO_FIELD_NUMBER: _ClassVar[int]
    id: int
    queue: str
    data: bytes
    priority: int
    created_at: int
    run_at: int
    started_at: int
    attempts: int
    max_attempts: int
    backoff_ms: int
    ttl_ms: int
    timeout_ms: int
    unique_key: str
    depends_on: _containers.RepeatedScalarFieldContainer[int]
    lifo: bool
    def __init__(self, id: _Optional[int] = ..., queue: _Optional[str] = ..., data: _Optional[bytes] = ..., priority: _Optional[int] = ..., created_at: _Optional[int] = ..., run_at: _Optional[int] = ..., started_at: _Optional[int] = ..., attempts: _Optional[int] = ..., max_attempts: _Optional[int] = ..., backoff_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., unique_key: _Optional[str] = ..., depends_on: _Optional[_Iterable[int]] = ..., lifo: _Optional[bool] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("id", "result")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    id: int
    result: bytes
    def __init__(self, id: _Optional[int] = ..., result: _Optional[bytes] = ...) -> None: ...

class AckResponse(_message.Message):
    __slots__ = ("ok",)
    OK_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    def __init__(self, ok: _Optional[bool] = ...) -> None: ...

class AckBatchRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class AckBatchResponse(_message.Message):
    __slots__ = ("ok", "acked")
    OK_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    acked: int
    def __init__(self, ok: _Optional[bool] = ..., acked: _Optional[int] = ...) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("id", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: int
    error: str
    def __init__(self, id: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class FailResponse(_message.Message):
    __slots__ = ("ok",)
    OK_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    def __init__(self, ok: _Optional[bool] = ...) -> None: ...

class GetStateRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class GetStateResponse(_message.Message):
    __slots__ = ("id", "state")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    id: int
    state: JobState
    def __init__(self, id: _Optional[int] = ..., state: _Optional[_Union[JobState, str]] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("queued", "processing", "delayed", "dlq")
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    DLQ_FIELD_NUMBER: _ClassVar[int]
    queued: int
    processing: int
    delayed: int
    dlq: int
    def __init__(self, queued: _Optional[int] = ..., processing: _Optional[int] = ..., delayed: _Optional[int] = ..., dlq: _Optional[int] = ...) -> None: ...

class StreamJobsRequest(_message.Message):
    __slots__ = ("queue", "batch_size", "prefetch")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    queue: str
    batch_size: int
    prefetch: int
    def __init__(self, queue: _Optional[str] = ..., batch_size: _Optional[int] = ..., prefetch: _Optional[int] = ...) -> None: ...

class JobResult(_message.Message):
    __slots__ = ("id", "success", "result", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: int
    success: bool
    result: bytes
    error: str
    def __init__(self, id: _Optional[int] = ..., success: _Optional[bool] = ..., result: _Optional[bytes] = ..., error: _Optional[str] = ...) -> None: ...
