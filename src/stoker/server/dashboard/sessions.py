"""Logins of browsers. A session is a sealed cookie: the server keeps nothing of it but the key.

The key lies in the key-value store of the tenant that no client can name, so every process and every node over the same
queue can open the cookie. The cookie holds the token itself, which the gate checks on every request: a session ends
when its token does. A browser without a login has a session, too, because forms need one.
"""

import base64
import hmac
import secrets
import time
from hashlib import sha256
from typing import Any, Final

import msgspec

from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.server.dispatcher import Dispatcher

KEY: Final = "dashboard/key"
ENDED: Final = "dashboard/ended/"
"""The prefix of sessions that were logged out before their time."""
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
ROTATED_S: Final = 15 * 60.0
"""An older cookie is sealed anew."""
COOKIE_CHARS_MAX: Final = 3_800
"""Browsers drop a cookie above 4 KB, with its name and its attributes."""
LOOKED_S: Final = 5.0
"""How often a cookie that does not open makes the server read the key again: another node may have made a new one."""


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
        self._key: bytes | None = None
        self._looked_at = 0.0

    async def seal(self, session: LoginSession) -> str:
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + _cipher(await self._load()).encrypt(nonce, _encode(session), None)
        return base64.urlsafe_b64encode(sealed).decode()

    async def open(self, cookie: str) -> LoginSession | None:
        """The session in a cookie. None if it is not one of ours, is over, or was logged out."""
        session = self._opened(cookie, await self._load())
        if session is None and time.monotonic() - self._looked_at > LOOKED_S:
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

    async def csrf(self, session: LoginSession) -> str:
        """The text that every form of this session carries, and that no other site can know."""
        return hmac.new(await self._load(), session.id.encode(), sha256).hexdigest()

    async def _has_ended(self, session: LoginSession) -> bool:
        found = await self._dispatcher.call_as_system(c.KvExists([ENDED + session.id]))
        return found.exists[0]

    def _opened(self, cookie: str, key: bytes) -> LoginSession | None:
        from cryptography.exceptions import InvalidTag

        try:
            sealed = base64.urlsafe_b64decode(cookie)
            return _decode(_cipher(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None))
        except (InvalidTag, ValueError, msgspec.MsgspecError):
            return None

    async def _load(self, *, again: bool = False) -> bytes:
        """The key. The first process that needs it makes it; of two that do so at once, the last one counts."""
        if self._key is None or again:
            self._looked_at = time.monotonic()
            try:
                found = await self._dispatcher.call_as_system(c.KvGet(KEY))
                if not found.exists:
                    await self._dispatcher.call_as_system(c.KvSet(KEY, secrets.token_bytes(KEY_BYTES)))
                    found = await self._dispatcher.call_as_system(c.KvGet(KEY))
                self._key = found.value
            except StokerError:
                if self._key is None:  # this broker keeps nothing for the server: a key for this process alone
                    self._key = secrets.token_bytes(KEY_BYTES)
        return self._key


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # loaded when the first page is asked for

    return AESGCM(key)
