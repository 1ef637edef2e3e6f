"""Logins of browsers. A session is a sealed cookie: the server keeps nothing of it but the key.

The key lies in the key-value store of the tenant that no client can name, so every process and every node over the same
queue can open the cookie. Nodes that start at the same moment may each make a key: all of them open cookies.

The cookie holds the token itself, which the gate checks on every request: a session ends when its token does. A browser
without a login has a session, too, because forms need one.
"""

import base64
import hmac
import secrets
import time
from hashlib import sha256
from typing import Any, Final

import msgspec

from stoker.model import commands as c
from stoker.model.errors import Unsupported
from stoker.server.dispatcher import Dispatcher

KEYS: Final = "dashboard/keys/"
"""The prefix of keys. The first one by name seals; more than one exists only if several nodes made theirs at once."""
KEYS_MAX: Final = 100
ENDED: Final = "dashboard/ended/"
"""The prefix of sessions that were logged out before their time."""
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
ROTATED_S: Final = 15 * 60.0
"""An older cookie is sealed anew."""
COOKIE_CHARS_MAX: Final = 3_800
"""Browsers drop a cookie above 4 KB, with its name and its attributes."""


class LoginSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one browser has told. `id` stays the same from the login to the logout."""

    id: str
    sealed_at: float
    token: str = ""
    """Empty without a login."""
    tenant: str | None = None
    """The tenant that an operator looks at; None = the token's own."""
    said: str = ""
    """The outcome of the last change, shown once on the next page."""

    def __repr__(self) -> str:
        return "LoginSession()"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LoginSession).decode


def new_session(token: str = "") -> LoginSession:
    return LoginSession(id=secrets.token_urlsafe(18), sealed_at=time.time(), token=token)


class Sessions:
    """Seals and opens the cookies of one server."""

    def __init__(self, dispatcher: Dispatcher, lasting_s: float) -> None:
        self._dispatcher = dispatcher
        self._lasting_s = lasting_s
        self._keys: list[bytes] = []

    async def seal(self, session: LoginSession) -> str:
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + _cipher((await self._load())[0]).encrypt(nonce, _encode(session), None)
        return base64.urlsafe_b64encode(sealed).decode()

    async def open(self, cookie: str) -> LoginSession | None:
        """The session in a cookie. None if it is not one of ours, is over, or was logged out."""
        session = self._opened(cookie, await self._load())
        if session is None:  # another node may have made a key since
            session = self._opened(cookie, await self._load(again=True))
        if session is None or not 0 <= time.time() - session.sealed_at + 60 < self._lasting_s + 60:
            return None
        if session.token and await self._has_ended(session):
            return None
        return session

    def rotated(self, session: LoginSession) -> LoginSession | None:
        """The session to seal anew, if its cookie is old."""
        now = time.time()
        if now - session.sealed_at < min(ROTATED_S, self._lasting_s / 4):
            return None
        return msgspec.structs.replace(session, sealed_at=now)

    async def end(self, session: LoginSession) -> None:
        """Log out: no copy of the cookie opens any more."""
        ttl_ms = round(self._lasting_s * 1_000) + 60_000
        await self._dispatcher.call_as_system(c.KvSet(ENDED + session.id, b"", ttl_ms))

    def csrf(self, session: LoginSession) -> str:
        """The text that every form of this session carries. No other site can know it: the id is only in the cookie."""
        return hmac.new(session.id.encode(), b"csrf", sha256).hexdigest()

    async def _has_ended(self, session: LoginSession) -> bool:
        found = await self._dispatcher.call_as_system(c.KvExists([ENDED + session.id]))
        return found.exists[0]

    def _opened(self, cookie: str, keys: list[bytes]) -> LoginSession | None:
        from cryptography.exceptions import InvalidTag

        try:
            sealed = base64.urlsafe_b64decode(cookie)
        except ValueError:
            return None
        for key in keys:
            try:
                return _decode(_cipher(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None))
            except (InvalidTag, ValueError, msgspec.MsgspecError):
                pass
        return None

    async def _load(self, *, again: bool = False) -> list[bytes]:
        """The keys, of which the first one seals. The first node that needs one makes it. Raises `StokerError`."""
        if again or not self._keys:
            try:
                self._keys = await self._read() or await self._make()
            except Unsupported:  # `stoker ui` keeps nothing in the queue that it looks at: a key for this process alone
                self._keys = self._keys or [secrets.token_bytes(KEY_BYTES)]
        return self._keys

    async def _read(self) -> list[bytes]:
        call = self._dispatcher.call_as_system
        names = (await call(c.KvKeys(f"{KEYS}*", None, KEYS_MAX))).keys
        found = (await call(c.KvGetMany(names))).values if names else []
        return [one.value for one in found if one.exists]

    async def _make(self) -> list[bytes]:
        await self._dispatcher.call_as_system(c.KvSet(KEYS + secrets.token_hex(8), secrets.token_bytes(KEY_BYTES)))
        return await self._read()


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # loaded when the first page is asked for

    return AESGCM(key)
