"""S11: a webhook reaches nothing that the whole internet could not reach, however its URL is written or resolved."""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from stoker.model.errors import Forbidden, InvalidRequest, LimitExceeded
from stoker.server.webhooks import HookRequest, Webhooks
from stoker.server.webhooks.addresses import NotAllowed, checked, is_allowed, networks
from stoker.server.webhooks.posting import Poster
from stoker.server.webhooks.urls import parse
from tests.webhooks.support import LOOPBACK, Got, Receiver, answering, run, serving, settings

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::808:808", "2002:808:808::1"]
PRIVATE = """
    127.0.0.1 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 169.254.1.1
    100.64.0.1 100.127.255.255 192.0.0.8 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255
    240.0.0.1 255.255.255.255 192.88.99.1
    :: ::1 fe80::1 febf::1 fec0::1 fc00::1 fd12:3456::1 ff02::1 2001:db8::1 2001::1 100::1 3fff::1
    ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 ::10.0.0.1
    64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:7f00:1::1 2002:a00:1::1 2002:a9fe:a9fe::1
""".split()


class Names:
    """A resolver of our own: each name has its answers, one list a question, the last one for ever."""

    def __init__(self, **names: Sequence[Sequence[str]]) -> None:
        self._names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._names.get(host)
        if not answers:
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str):
    """The positive control of everything below."""
    assert is_allowed(ip_address(address), ())


@pytest.mark.parametrize("address", PRIVATE)
def test_private_local_and_reserved_addresses_are_not(address: str):
    assert not is_allowed(ip_address(address), ())


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_that_leads_to_one_is_refused(address: str):
    async def claim():
        names = Names(evil_example=[[address]], mixed_example=[["93.184.216.34", address]])
        for host in ("evil.example", "mixed.example"):
            with pytest.raises(NotAllowed) as refused:
                await checked(parse(f"http://{host}/"), names, ())
            assert address not in str(refused.value)

    run(claim())


@pytest.mark.parametrize("address", PRIVATE)
def test_one_in_the_url_itself_is_refused_without_asking_a_resolver(address: str):
    async def claim():
        names = Names()
        host = f"[{address}]" if ":" in address else address
        with pytest.raises(NotAllowed):
            await checked(parse(f"https://{host}:8443/x"), names, ())
        assert names.asked == []

    run(claim())


def test_the_allow_list_lets_exactly_its_networks_through():
    allow = networks(["10.1.0.0/16", "fd00:1::/32"])
    for address in ("10.1.0.1", "10.1.255.255", "fd00:1::5", "::ffff:10.1.2.3"):
        assert is_allowed(ip_address(address), allow), address
    for address in ("10.0.255.255", "10.2.0.1", "fd00:2::5", "::ffff:10.2.0.1", "127.0.0.1"):
        assert not is_allowed(ip_address(address), allow), address


@pytest.mark.parametrize(
    "host",
    """
    2130706433 0x7f000001 0x7f.0.0.1 0x7f.1 017700000001 0177.0.0.1 0177.1 127.1 127.0.1 1.2.3 127.0.0.01 0 0x 08
    127.0.0.256 1.2.3.4.5 example.0x7f evil.example.1
    """.split(),
)
def test_other_spellings_of_addresses_are_refused(host: str):
    with pytest.raises(InvalidRequest):
        parse(f"http://{host}/")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "HTTP://example.com/",
        "javascript:alert(1)",
        "http:/example.com/",
        "http:///path",
        "http://",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://127.0.0.1@example.com/",
        "http://example.com@127.0.0.1/",
        "http://example.com#@127.0.0.1/",
        "http://example.com/#fragment",
        "http://example.com\\@127.0.0.1/",
        "http://example.com/\\",
        "http://exa mple.com/",
        "http://example.com/a b",
        "http://example.com/\r\nX-Evil: 1",
        "http://example.com\r\n/",
        "http://example.com/\n",
        "http://example.com/\x00",
        "http://example.com/é",
        "http://exämple.com/",
        "http://\uff11\uff12\uff17.0.0.1/",
        "http://ⓛocalhost/",
        "http://%31%32%37.0.0.1/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:99999/",
        "http://example.com:-1/",
        "http://example.com:/",
        "http://example.com:80:80/",
        "http://[::1/",
        "http://::1/",
        "http://[::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[127.0.0.1]/",
        "http://[::ffff:1.2.3]/",
        "http://.example.com/",
        "http://example..com/",
        "http://./",
        "http://" + "a" * 64 + ".com/",
        "http://" + "a." * 127 + "com/",
        None,
        7,
    ],
)
def test_a_url_that_is_not_plain_is_refused(url: object):
    with pytest.raises(InvalidRequest):
        parse(url)


def test_a_url_that_is_too_long_is_refused():
    with pytest.raises(LimitExceeded):
        parse("http://example.com/" + "x" * 2_100)


def test_plain_urls_mean_what_they_say():
    """The positive control."""
    target = parse("https://Hooks.Example.com:8443/in/x-1_2~3;a=b,c!$&'()*+@:?q=%20&r[]=1/?")
    assert (target.scheme, target.host, target.port) == ("https", "hooks.example.com", 8443)
    assert target.resource == "/in/x-1_2~3;a=b,c!$&'()*+@:?q=%20&r[]=1/?"
    assert target.authority == "hooks.example.com:8443"
    assert parse("http://example.com").resource == "/"
    assert parse("http://example.com?x").resource == "/?x"
    assert parse("http://xn--exmple-cua.com./").host == "xn--exmple-cua.com"
    assert parse("http://[2606:2800:220:1::1]/").authority == "[2606:2800:220:1::1]"
    assert parse("http://93.184.216.34:80/").address == ip_address("93.184.216.34")


# --- on the wire -----------------------------------------------------------------------------------


def poster(names: Names, allow: Sequence[str]) -> Poster:
    return Poster(settings(), networks(allow), names)


def test_a_name_is_resolved_once_and_that_address_is_called():
    """Rebinding: the second answer would lead elsewhere, and nobody asks for it."""

    async def claim():
        async with Receiver() as receiver:
            names = Names(rebind_example=[["127.0.0.1"], ["127.0.0.2"]])
            target = parse(f"http://rebind.example:{receiver.port}/x")
            outcome = await poster(names, ["127.0.0.1/32"]).post(target, {}, b"{}")
            assert outcome.ok
            assert names.asked == ["rebind.example"]
            assert receiver.got[0].headers["host"] == f"rebind.example:{receiver.port}"

    run(claim())


def test_a_name_that_turns_private_is_not_called_any_more():
    async def claim():
        async with Receiver() as receiver:
            names = Names(rebind_example=[["127.0.0.2"], ["127.0.0.1"]])
            target = parse(f"http://rebind.example:{receiver.port}/x")
            guarded = poster(names, ["127.0.0.1/32"])
            refused = await guarded.post(target, {}, b"{}")
            assert not refused.ok
            assert "private" in refused.error
            assert receiver.connections == 0
            assert (await guarded.post(target, {}, b"{}")).ok  # the positive control

    run(claim())


def test_a_redirect_is_a_failure_and_is_not_followed():
    async def claim():
        async with Receiver() as inside:

            async def redirect(got: Got, writer: asyncio.StreamWriter) -> None:
                writer.write(f"HTTP/1.1 307 Go\r\nLocation: {inside.url()}\r\nContent-Length: 0\r\n\r\n".encode())

            async with Receiver(redirect) as receiver:
                outcome = await poster(Names(), LOOPBACK).post(parse(receiver.url()), {}, b"{}")
            assert (outcome.ok, outcome.status) == (False, 307)
            assert inside.connections == 0

    run(claim())


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 307, 308, 400, 401, 404, 410, 429, 500, 503, 999])
def test_only_2xx_is_success(status: int):
    async def claim():
        async with Receiver(answering(status)) as receiver:
            posting = poster(Names(), LOOPBACK)
            assert not (await posting.post(parse(receiver.url()), {}, b"{}")).ok
            assert (await posting.post(parse(receiver.url()), {}, b"{}")).ok

    run(claim())


def test_a_private_url_cannot_be_registered():
    async def claim():
        async with serving(allow=()) as server:
            names = Names(inside_example=[["10.0.0.1"]], outside_example=[["93.184.216.34"]])
            guarded = Webhooks(server.dispatcher, settings(allow=()), resolver=names)
            for host in ("127.0.0.1", "[::1]", "inside.example", "[::ffff:127.0.0.1]"):
                with pytest.raises(Forbidden):
                    await guarded.add("default", HookRequest(url=f"http://{host}/", events=("*",)))
            assert await guarded.list("default") == ()
            for host in ("93.184.216.34", "outside.example", "not.known.yet.example"):
                await guarded.add("default", HookRequest(url=f"http://{host}/", events=("*",)))
            assert len(await guarded.list("default")) == 3

    run(claim())


@pytest.mark.parametrize(
    "host", ["ip6-localhost", "ip6-loopback", "broadcasthost", "app.localhost", "localhost.localdomain", "nas.local"]
)
def test_a_local_name_that_has_no_address_now_cannot_be_registered(host: str):
    """It never means a receiver on the internet; where it means one at all, it means this machine or its network."""

    async def claim():
        async with serving(allow=()) as server:
            for names in (Names(), Names(**{host.replace(".", "_"): [["::1"]]})):
                guarded = Webhooks(server.dispatcher, settings(allow=()), resolver=names)
                for written in (host, host.upper(), f"{host}."):
                    with pytest.raises(Forbidden) as refused:
                        await guarded.add("default", HookRequest(url=f"http://{written}/", events=("*",)))
                    assert "webhooks.allow" in str(refused.value)
                assert await guarded.list("default") == ()

    run(claim())


def test_a_local_name_may_wait_for_its_address_where_the_operator_allows_networks():
    async def claim():
        async with serving(allow=()) as server:
            guarded = Webhooks(server.dispatcher, settings(allow=("10.1.0.0/16",)), resolver=Names())
            await guarded.add("default", HookRequest(url="http://receiver:8080/", events=("*",)))
            with pytest.raises(Forbidden):
                await guarded.add("default", HookRequest(url="http://ip6-localhost:8080/", events=("*",)))

    run(claim())


def test_the_system_resolver_finds_loopback_and_it_is_refused():
    """With the real resolver: `localhost` is a name like any other."""

    async def claim():
        async with serving(allow=()) as server:
            with pytest.raises(Forbidden):
                await server.webhooks.add("default", HookRequest(url="http://localhost:6790/", events=("*",)))

    run(claim())
