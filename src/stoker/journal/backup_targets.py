"""Targets for backups: a directory, or storage that speaks S3. Nothing here knows what a backup is.

A target holds folders of objects, one level deep. Names come from our own code and are still checked here: no name
leads out of the target, and no symbolic link is followed below it.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from stoker.model.errors import InvalidRequest, Unavailable

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""The name of a folder or an object."""

PIECE_BYTES = 1 << 20
"""How much is read from a directory at once."""

PART_BYTES = 8 << 20
"""How much goes over the network at once. S3 takes ten thousand parts for an object, so an object may have up to 80 GB.
"""

PARTS_AT_ONCE = 2
"""Limits the memory for one upload to a few parts."""


class TargetFailed(Unavailable):
    """The target did not do what was asked. It may work later."""

    code = "target_failed"


class BackupTarget(Protocol):
    """A place for backups."""

    url: str
    """For messages, without credentials."""

    def put(self, folder: str, name: str, pieces: Iterable[bytes]) -> None:
        """Write an object. When this returns, it is complete and durable; before that, none of it is visible."""
        ...

    def get(self, folder: str, name: str) -> Iterator[bytes]:
        """The bytes of an object, piece by piece. Raises `FileNotFoundError` if there is none."""
        ...

    def folders(self) -> list[str]:
        """The names of all folders, in order."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """The objects of a folder and how many bytes each has."""
        ...

    def delete(self, folder: str, first: str) -> None:
        """Remove a folder with everything in it, the object `first` before all others."""
        ...


class Credentials(msgspec.Struct, frozen=True):
    """Credentials for S3, if the AWS_* variables of the environment are not to be used."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.access_key_id!r}, ...)"


def open_target(url: str, credentials: Credentials | None = None) -> BackupTarget:
    """A path, `file:///path`, or `s3://bucket/prefix?endpoint=https://...&region=...`."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        if not url:
            raise InvalidRequest("the target for backups is empty: expected a path, file:///path or s3://bucket/prefix")
        return DirectoryTarget(Path(url))
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest(
            f"credentials in a {scheme}:// URL end up in logs: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
        )
    if scheme == "file":
        if parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise InvalidRequest(f"{url}: expected file:///absolute/path")
        return DirectoryTarget(Path(unquote(parts.path)))
    if scheme == "s3":
        return _open_s3(url, credentials)
    raise InvalidRequest(
        f"{scheme}:// is not supported for backups: expected a path, file:///path or s3://bucket/prefix"
    )


def _open_s3(url: str, credentials: Credentials | None) -> "S3Target":
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(parameters.keys() - {"endpoint", "region"}):
        raise InvalidRequest(f"unknown parameters {unknown}: s3:// takes endpoint and region")
    endpoint, region = parameters.get("endpoint"), parameters.get("region")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise InvalidRequest(f"endpoint={endpoint}: expected a URL with https:// or http://")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", parts.netloc):
        raise InvalidRequest(f"{parts.netloc!r} is not the name of a bucket: expected s3://bucket/prefix")
    prefix = unquote(parts.path).strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise InvalidRequest(f"the prefix {prefix!r} has empty or relative parts: expected s3://bucket/prefix")
    return S3Target(parts.netloc, prefix, endpoint, region, credentials)


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise InvalidRequest(f"{name!r} is not a valid name for a backup or a file of one")
    return name


# --- a directory -------------------------------------------------------------------------------------


class DirectoryTarget:
    """A directory, ideally on another disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = str(path)

    def put(self, folder: str, name: str, pieces: Iterable[bytes]) -> None:
        beside = f".{_checked(name)}.part"  # a name that `sizes` does not list
        with self._failing(f"writing {folder}/{name}"):
            self._make(folder)
            with self._opened(folder) as place:
                _unlink(beside, place)
                self._write(beside, place, pieces)
                os.rename(beside, name, src_dir_fd=place, dst_dir_fd=place)
                os.fsync(place)

    def _make(self, folder: str) -> None:
        if (self.path / _checked(folder)).exists():
            return
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / folder).mkdir(mode=0o700, exist_ok=True)
        place = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(place)
        finally:
            os.close(place)

    @staticmethod
    def _write(name: str, place: int, pieces: Iterable[bytes]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=place)
        with open(descriptor, "wb", buffering=0) as file:
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    rest = rest[file.write(rest) :]
            os.fsync(descriptor)

    def get(self, folder: str, name: str) -> Iterator[bytes]:
        _checked(name)
        with self._failing(f"reading {folder}/{name}", reading=True):
            with self._opened(folder) as place:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
            with open(descriptor, "rb", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError("not a regular file")
                while piece := file.read(PIECE_BYTES):
                    yield piece

    def folders(self) -> list[str]:
        with self._failing("listing"):
            try:
                with os.scandir(self.path) as found:
                    return sorted(
                        entry.name
                        for entry in found
                        if entry.is_dir(follow_symlinks=False) and NAME.fullmatch(entry.name)
                    )
            except FileNotFoundError:
                return []

    def sizes(self, folder: str) -> dict[str, int]:
        with self._failing(f"listing {folder}"):
            try:
                with self._opened(folder) as place, os.scandir(place) as found:
                    return {
                        entry.name: entry.stat(follow_symlinks=False).st_size
                        for entry in found
                        if entry.is_file(follow_symlinks=False) and NAME.fullmatch(entry.name)
                    }
            except FileNotFoundError:
                return {}

    def delete(self, folder: str, first: str) -> None:
        with self._failing(f"removing {folder}"):
            try:
                with self._opened(folder) as place:
                    _unlink(_checked(first), place)
                    os.fsync(place)
                    for name in os.listdir(place):
                        _unlink(name, place)
                os.rmdir(self.path / folder)
            except FileNotFoundError:
                pass

    @contextmanager
    def _opened(self, folder: str) -> Iterator[int]:
        """A descriptor of the folder itself, never of the target of a symbolic link in its place."""
        place = os.open(self.path / _checked(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield place
        finally:
            os.close(place)

    @contextmanager
    def _failing(self, doing: str, reading: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if reading and isinstance(error, FileNotFoundError):
                raise
            raise TargetFailed(f"{doing} in {self.url} failed: {error.strerror or error}") from error


def _unlink(name: str, place: int) -> None:
    try:
        os.unlink(name, dir_fd=place)
    except FileNotFoundError:
        pass


# --- S3 ----------------------------------------------------------------------------------------------


class S3Target:
    """A bucket of Amazon's S3, or of a compatible service, below a prefix."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        try:
            import obstore
            from obstore.exceptions import BaseError
            from obstore.store import S3Store
        except ImportError as error:
            raise InvalidRequest(
                "backups to s3:// need the package obstore: install it with pip install 'stoker[s3]'"
            ) from error
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._obstore: Any = obstore
        self._errors = (BaseError, OSError, ValueError)
        # A part must get through within the timeout: 8 MB in 2 minutes is half a megabit a second.
        client: dict[str, Any] = {"connect_timeout": "10s", "timeout": "120s"}
        if endpoint is not None and endpoint.startswith("http://"):
            client["allow_http"] = True
        settings: dict[str, Any] = {"endpoint": endpoint, "region": region}
        if credentials is not None:
            settings |= {name: getattr(credentials, name) for name in credentials.__struct_fields__}
        settings = {name: value for name, value in settings.items() if value is not None}
        with self._failing("opening"):
            self._store: Any = S3Store(
                bucket,
                prefix=prefix or None,
                client_options=client,  # type: ignore[arg-type]  # a plain dict is what it becomes
                retry_config={"max_retries": 5, "retry_timeout": timedelta(minutes=3)},
                **settings,
            )

    def put(self, folder: str, name: str, pieces: Iterable[bytes]) -> None:
        """Write small objects in one request. A multipart upload that is interrupted is aborted, and nothing of it is
        left.
        """
        path = f"{_checked(folder)}/{_checked(name)}"
        rest = iter(pieces)
        start, size = [], 0
        for piece in rest:
            start.append(piece)
            size += len(piece)
            if size > PART_BYTES:
                break
        with self._failing(f"writing {path}"):
            if size <= PART_BYTES:
                self._obstore.put(self._store, path, b"".join(start), use_multipart=False)
            else:
                whole = chain(start, rest)
                self._obstore.put(
                    self._store, path, whole, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE, use_multipart=True
                )

    def get(self, folder: str, name: str) -> Iterator[bytes]:
        """Read by ranges, so each request is short, however slowly the pieces are consumed."""
        path = f"{_checked(folder)}/{_checked(name)}"
        with self._failing(f"reading {path}", reading=True):
            size = self._obstore.head(self._store, path)["size"]
            for start in range(0, size, PART_BYTES):
                stop = min(start + PART_BYTES, size)
                yield bytes(self._obstore.get_range(self._store, path, start=start, end=stop))

    def folders(self) -> list[str]:
        with self._failing("listing"):
            found = self._obstore.list_with_delimiter(self._store)["common_prefixes"]
            return sorted(name for path in found if NAME.fullmatch(name := path.strip("/")))

    def sizes(self, folder: str) -> dict[str, int]:
        prefix = f"{_checked(folder)}/"
        with self._failing(f"listing {folder}"):
            found = [(meta["path"], meta["size"]) for page in self._obstore.list(self._store, prefix) for meta in page]
        return {name: size for path, size in found if NAME.fullmatch(name := path.removeprefix(prefix))}

    def delete(self, folder: str, first: str) -> None:
        prefix = f"{_checked(folder)}/"
        with self._failing(f"removing {folder}"):
            self._remove([prefix + _checked(first)])
            for page in self._obstore.list(self._store, prefix):
                self._remove([meta["path"] for meta in page])

    def _remove(self, paths: list[str]) -> None:
        try:
            self._obstore.delete(self._store, paths)
        except FileNotFoundError:
            pass

    @contextmanager
    def _failing(self, doing: str, reading: bool = False) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            if reading and isinstance(error, FileNotFoundError):
                raise
            what = str(error).partition("\n")[0]
            raise TargetFailed(f"{doing} in {self.url} failed: {what}") from error
