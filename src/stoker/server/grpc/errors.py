"""From errors of the contract to gRPC's statuses, with details that say it exactly.

The status is what gRPC's own tools understand. Ours stands beside it: the code and whether to try again as trailing
metadata, and the same as google.rpc.ErrorInfo for clients that read error details.
"""

from typing import Any, NoReturn

import grpc

from stoker.model.errors import BY_CODE, Refused, StokerError, Unavailable
from stoker.proto import stoker_pb2 as pb

DOMAIN = "stoker"
INFO_URL = "type.googleapis.com/google.rpc.ErrorInfo"

NAMED: dict[str, grpc.StatusCode] = {
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "limit_exceeded": grpc.StatusCode.INVALID_ARGUMENT,  # the same request is refused again, however long one waits
    "dependency_cycle": grpc.StatusCode.INVALID_ARGUMENT,
    "not_found": grpc.StatusCode.NOT_FOUND,
    "unknown_stage": grpc.StatusCode.NOT_FOUND,
    "unauthenticated": grpc.StatusCode.UNAUTHENTICATED,
    "forbidden": grpc.StatusCode.PERMISSION_DENIED,
    "quota_exceeded": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "disk_full": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "memory_full": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unsupported": grpc.StatusCode.UNIMPLEMENTED,
    "unknown": grpc.StatusCode.UNKNOWN,
}


def status_of(kind: type[StokerError]) -> grpc.StatusCode:
    """The gRPC status of an error: by its code, else by its base class."""
    named = NAMED.get(kind.code)
    if named is not None:
        return named
    if issubclass(kind, Unavailable):
        return grpc.StatusCode.UNAVAILABLE
    return grpc.StatusCode.FAILED_PRECONDITION if issubclass(kind, Refused) else grpc.StatusCode.INTERNAL


STATUS: dict[str, grpc.StatusCode] = {code: status_of(kind) for code, kind in BY_CODE.items()}


def details_of(error: StokerError) -> bytes:
    """A google.rpc.Status."""
    info = pb.ErrorInfo(reason=error.code, domain=DOMAIN, metadata={"retryable": word(error.retryable)})
    status = pb.Status(code=STATUS[error.code].value[0], message=str(error))
    status.details.add(type_url=INFO_URL, value=info.SerializeToString())
    return status.SerializeToString()  # type: ignore[no-any-return]


def word(truth: bool) -> str:
    return "true" if truth else "false"


async def abort(context: Any, error: StokerError) -> NoReturn:
    """End the call with this error."""
    trailing = (
        ("stoker-code", error.code),
        ("stoker-retryable", word(error.retryable)),
        ("grpc-status-details-bin", details_of(error)),
    )
    await context.abort(STATUS[error.code], str(error), trailing)
    raise AssertionError("abort raises")
