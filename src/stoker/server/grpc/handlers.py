"""How a call reaches its service: the caller is checked before its message is unpacked.

gRPC would unpack a message first, and write a trace of its own to the log where it cannot. So it is given none to
unpack: services are offered by their descriptors, and their methods are handed a caller and a message.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from stoker.model.errors import InvalidRequest, StokerError, Unknown
from stoker.server.grpc.caller import Caller
from stoker.server.grpc.errors import abort
from stoker.server.grpc.size_check import check_size
from stoker.server.service import Service

log = logging.getLogger("stoker.server")

Method = Callable[[Caller, Any], Awaitable[Any]]
"""Takes a message, or an iterator of them; answers with one, or with None where it has written to the caller."""


def offer(server: Any, service: Service, descriptor: Any, servicer: Any) -> None:
    """Serve all methods of a service by those of the same name."""
    handlers = {
        method.name: handler_of(service, method, getattr(servicer, method.name)) for method in descriptor.methods
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))


def handler_of(service: Service, descriptor: Any, method: Method) -> Any:
    kind = GetMessageClass(descriptor.input_type)
    streams_in, streams_out = descriptor.client_streaming, descriptor.server_streaming
    adapt = messages_of if streams_in else message_of

    async def handle(sent: Any, context: Any) -> Any:
        try:
            caller = Caller(service, context)
            return await method(caller, adapt(kind, sent))
        except StokerError as error:
            failure = error
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:
            log.exception("%s failed unexpectedly", descriptor.full_name)
            name = type(error).__name__
            failure = Unknown(f"it is not known whether this happened: an unexpected {name}; see the log")
        await abort(context, failure)

    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[streams_in, streams_out]
    return make(handle, None, written)


def written(message: Any) -> bytes:
    return message.SerializeToString()  # type: ignore[no-any-return]


def message_of(kind: Any, sent: bytes) -> Any:
    check_size(kind.DESCRIPTOR, sent)
    try:
        return kind.FromString(sent)
    except DecodeError:
        name = kind.DESCRIPTOR.full_name
        raise InvalidRequest(f"invalid message: these bytes are not a {name}; is your .proto file ours?") from None


async def messages_of(kind: Any, sent: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    async for part in sent:
        yield message_of(kind, part)
