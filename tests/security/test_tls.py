"""S19: what a TLS listener refuses, and what our own clients refuse of a server."""

import asyncio
import datetime
import ipaddress
import ssl
import warnings
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from stoker.brokers.connect import open_broker
from stoker.model import commands as c
from stoker.model.errors import StokerError, Unreachable
from stoker.server.config.tree import ServerLimits, TcpListener, Tls
from tests.served.on_loop import PATIENCE_S, Peer, Place, run, serving, until

NOW = datetime.datetime.now(datetime.UTC)


class Authority:
    """One that signs certificates, and what it has signed, as files."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.key = directory, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._signed(self.name, self.key, ca=True)
        self.file = self._write(f"{name}.pem", self.certificate)

    def issue(self, name: str, host: str = "localhost", days: int = 1) -> Tls:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._write(f"{name}.pem", self._signed(subject, key, host=host, days=days))
        secret = self.directory / f"{name}.key"
        secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return Tls(cert=certificate, key=str(secret))

    def _signed(self, subject: x509.Name, key: Any, *, ca: bool = False, host: str = "", days: int = 1) -> Any:
        ends = NOW + datetime.timedelta(days=days)
        begins = min(NOW, ends) - datetime.timedelta(days=1)
        builder = x509.CertificateBuilder(
            self.name, subject, key.public_key(), x509.random_serial_number(), begins, ends
        )
        builder = builder.add_extension(x509.BasicConstraints(ca, None), critical=True)
        if host:
            try:
                name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
            except ValueError:
                name = x509.DNSName(host)
            builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def _write(self, name: str, certificate: Any) -> str:
        path = self.directory / name
        path.write_bytes(certificate.public_bytes(Encoding.PEM))
        return str(path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


def listening(tls: Tls, **limits: Any) -> Any:
    return serving(ServerLimits(**limits), tcp=TcpListener(listen="127.0.0.1:0", tls=tls))


async def ask_through_client(place: Place, scheme: str = "tcps", host: str = "localhost", **parameters: Any) -> Any:
    """One call of our own client, as a program makes it."""
    parameters = {"retry_s": 0, "connect_timeout_s": PATIENCE_S, **parameters}
    url = f"{scheme}://{host}:{place.port}?" + "&".join(f"{name}={value}" for name, value in parameters.items())

    def call() -> Any:
        broker = open_broker(url)
        try:
            return broker.execute("default", c.ListQueues())
        finally:
            broker.close()

    return await asyncio.to_thread(call)


async def refusal(place: Place, **parameters: Any) -> str:
    with pytest.raises(StokerError) as caught:
        await ask_through_client(place, **parameters)
    return str(caught.value)


async def connect(place: Place, context: ssl.SSLContext) -> Peer:
    connection = asyncio.open_connection("127.0.0.1", place.port, ssl=context, server_hostname="localhost")
    async with asyncio.timeout(PATIENCE_S):
        peer = Peer(*await connection)
    place.peers.append(peer)
    return peer


def test_a_client_that_trusts_the_authority_is_served(authority: Authority):
    """The control for all others here."""

    async def main() -> None:
        async with listening(authority.issue("server")) as place:
            assert (await ask_through_client(place, ca=authority.file)).names == []
            assert (await ask_through_client(place, verify="false")).names == []

    run(main)


def test_a_certificate_for_another_host_is_refused(authority: Authority):
    async def main() -> None:
        async with listening(authority.issue("server", host="queue.example")) as place:
            assert "certificate" in await refusal(place, ca=authority.file)

    run(main)


def test_an_address_is_a_name_too(authority: Authority):
    async def main() -> None:
        async with listening(authority.issue("server", host="127.0.0.1")) as place:
            assert (await ask_through_client(place, host="127.0.0.1", ca=authority.file)).names == []
            assert "certificate" in await refusal(place, host="localhost", ca=authority.file)

    run(main)


def test_a_certificate_of_an_unknown_authority_is_refused(authority: Authority, tmp_path: Path):
    async def main() -> None:
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other", "other")
        async with listening(other.issue("server")) as place:
            assert "certificate" in await refusal(place, ca=authority.file)
            assert "certificate" in await refusal(place)  # the system's authorities have not signed it either

    run(main)


def test_an_expired_certificate_is_refused(authority: Authority):
    async def main() -> None:
        async with listening(authority.issue("server", days=-1)) as place:
            assert "expired" in await refusal(place, ca=authority.file)

    run(main)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_of_tls_are_refused(authority: Authority, version: ssl.TLSVersion):
    async def main() -> None:
        async with listening(authority.issue("server")) as place:
            for newest, is_served in ((version, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)):
                context = ssl.create_default_context(cafile=authority.file)
                context.set_ciphers("DEFAULT:@SECLEVEL=0")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    context.minimum_version = context.maximum_version = newest
                try:
                    answer = await (await connect(place, context)).ask(cmd="PING")
                except (ssl.SSLError, ConnectionError):
                    assert not is_served
                else:
                    assert is_served
                    assert answer["ok"]

    run(main)


def test_plain_bytes_on_a_tls_port_end_with_a_clear_error_and_harm_nobody(authority: Authority):
    async def main() -> None:
        async with listening(authority.issue("server"), handshake_s=3.0) as place:
            text = await refusal(place, scheme="tcp")
            assert str(place.port) in text
            silent = await place.peer()
            silent.writer.write(b'{"cmd":"PING"}\n')
            assert await silent.is_cut_off()
            assert (await ask_through_client(place, ca=authority.file)).names == []

    run(main)


def test_who_connects_and_shakes_no_hands_is_cut_off(authority: Authority):
    async def main() -> None:
        async with listening(authority.issue("server"), handshake_s=0.3) as place:
            assert await (await place.peer()).is_cut_off()

    run(main)


def test_connections_that_are_busy_with_tls_are_counted_and_make_room(authority: Authority):
    async def main() -> None:
        async with listening(authority.issue("server"), handshake_s=PATIENCE_S, connections_max=2) as place:
            silent: list[Peer] = []
            for _ in range(4):
                silent.append(await place.peer())
                await until(lambda: place.server.service.meter.connections.get("tcp") == min(len(silent), 2))
            peer = await connect(place, ssl.create_default_context(cafile=authority.file))
            assert (await peer.ask(cmd="PING"))["ok"]
            for one in silent[:3]:
                assert await one.is_cut_off()

    run(main)


def test_tls_on_a_plain_port_ends_with_a_clear_error():
    async def main() -> None:
        async with serving() as place:
            with pytest.raises(Unreachable) as caught:
                await ask_through_client(place, verify="false")
            assert str(place.port) in str(caught.value)
            assert (await ask_through_client(place, scheme="tcp")).names == []

    run(main)


def test_clients_must_show_a_certificate_where_an_authority_for_them_is_set(authority: Authority, tmp_path: Path):
    async def main() -> None:
        (tmp_path / "other").mkdir()
        stranger = Authority(tmp_path / "other", "other").issue("stranger")
        server, known = authority.issue("server"), authority.issue("client")
        tls = Tls(cert=server.cert, key=server.key, client_ca=authority.file)
        async with listening(tls, handshake_s=PATIENCE_S) as place:
            for own, is_served in ((None, False), (stranger, False), (known, True)):
                context = ssl.create_default_context(cafile=authority.file)
                if own is not None:
                    context.load_cert_chain(own.cert, own.key)
                try:
                    answer = await (await connect(place, context)).ask(cmd="PING")
                except (ssl.SSLError, ConnectionError, ValueError, EOFError):
                    assert not is_served
                else:
                    assert is_served
                    assert answer["ok"]
            assert place.broker.execute("default", c.GetStats()).totals.pushed == 0

    run(main)


def test_a_frame_that_is_too_large_is_told_over_tls_too(authority: Authority):
    async def main() -> None:
        async with listening(authority.issue("server")) as place:
            peer = await connect(place, ssl.create_default_context(cafile=authority.file))
            peer.writer.write(b"\xff\xff\xff\xff")
            assert (await peer.frame())["code"] == "limit_exceeded"
            assert await peer.is_cut_off()

    run(main)
