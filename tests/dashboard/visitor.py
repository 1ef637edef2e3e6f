"""A browser without scripts: keeps cookies, and sends forms with what the page has put into them."""

import http.client
import re
from html import unescape
from http.cookies import SimpleCookie
from typing import NamedTuple, Protocol
from urllib.parse import urlencode

import msgspec

from tests.http.support import TIMEOUT_S

CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')


class Seen(msgspec.Struct):
    """An answer."""

    status: int
    headers: dict[str, str]
    set_cookies: list[str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def words(self) -> str:
        """The text of the page, without its tags."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.text)).split())


class Listens(Protocol):
    """A server on this machine."""

    @property
    def port(self) -> int: ...


class Listener(NamedTuple):
    """A server in another process."""

    port: int


class Visitor:
    def __init__(self, server: Listens) -> None:
        self.server = server
        self.cookies: dict[str, str] = {}

    def get(self, path: str, **headers: str) -> Seen:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, fields: dict[str, str] | None = None, *, csrf: str | None = None, **headers: str) -> Seen:
        """Sends a form as a page of the dashboard would; `csrf` and the headers may be others."""
        if csrf is None:
            found = CSRF.search(self.get("/ui/help").text)
            assert found is not None
            csrf = found[1]
        sent = urlencode({**(fields or {}), "csrf": csrf}).encode()
        named = {
            "origin": f"http://127.0.0.1:{self.server.port}",
            "sec_fetch_site": "same-origin",
            "content_type": "application/x-www-form-urlencoded",
            **headers,
        }
        return self._ask("POST", path, sent, {name: value for name, value in named.items() if value})

    def login(self, token: str) -> Seen:
        return self.post("/ui/login", {"token": token})

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Seen:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=TIMEOUT_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            if self.cookies:
                named["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            cookies = answer.headers.get_all("set-cookie") or []
            for text in cookies:
                for name, morsel in SimpleCookie(text).items():
                    self.cookies[name] = morsel.value
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Seen(answer.status, found, cookies, answer.read())
        finally:
            connection.close()
