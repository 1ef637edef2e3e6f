"""An object store as a file system of Arrow, through delta-rs: data goes the same way as the tables' versions.

It is imported only for lakes that are in one.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler

from stoker.model.errors import InvalidRequest, StokerError

SETTINGS = (
    "access_key_id",
    "secret_access_key",
    "session_token",
    "region",
    "endpoint_url",
    "virtual_hosted_style_request",
)
"""Of the storage options, those that the probe needs. It takes the others from the environment."""


class StoreOverwrites(StokerError):
    """The store has no conditional writes."""

    code = "store_overwrites"


class BytesOut:
    """A stream of delta-rs, which takes bytes and not the buffers that Arrow hands it."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def write(self, data: Any) -> int:
        return int(self._raw.write(bytes(data)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


class ObjectStore(DeltaStorageHandler):
    """Writes through `BytesOut`. An object is there when its stream is closed, as a whole."""

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> Any:
        return pa.PythonFile(BytesOut(self._handler.open_output_stream(path, metadata)), mode="w")


def check_conditional(root: str, options: Mapping[str, str]) -> None:
    """Refuse a store that overwrites: two writers at once would make the same version, and lose events without a word.

    delta-rs looks for newer versions before it writes one, so only a write of our own shows what the store does.
    """
    try:
        import obstore
        from obstore.exceptions import AlreadyExistsError
        from obstore.store import from_url
    except ImportError as error:
        raise InvalidRequest(
            "a lake in an object store needs the package obstore: install it with pip install 'stoker[s3]'"
        ) from error
    config = {f"aws_{name}": options[f"aws_{name}"] for name in SETTINGS if f"aws_{name}" in options}
    client: Any = {"allow_http": True} if options.get("allow_http") == "true" else {}
    store = from_url(root, config=config, client_options=client)  # type: ignore[call-overload]
    name = f"_probe/{uuid4().hex}"
    try:
        obstore.put(store, name, b"first", mode="create", use_multipart=False)
        obstore.put(store, name, b"second", mode="create", use_multipart=False)
    except AlreadyExistsError:
        return
    finally:
        obstore.delete(store, name)
    raise StoreOverwrites(
        f"the store of {root} overwrites objects that must only be written if they do not exist yet (If-None-Match: *)."
        " Two writers could make the same version of a table, and events of one of them would be lost: use a store"
        " with conditional writes"
    )
