"""The end of a server, and its encryption: what clients of HTTP see of them."""

import datetime
import ipaddress
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from stoker.brokers.connect import open_broker
from stoker.model import commands as c
from stoker.model.errors import Unreachable
from stoker.server.config.tree import Tls
from tests.http.support import HttpServer, Reply, wait_until

Serve = Callable[..., HttpServer]


def test_a_waiting_pull_is_told_that_the_server_stops(server: HttpServer):
    found: list[Reply] = []
    waiting = threading.Thread(target=lambda: found.append(server.post("/queues/a/pull", {"timeout": 60_000})))
    waiting.start()
    wait_until(server, lambda: server.server.dispatcher.is_waiting)
    server.run(server.server.stop())
    waiting.join(60)
    assert (found[0].status, found[0].json["code"]) == (503, "shutting_down")
    assert found[0].headers["retry-after"] == "5"


def test_streams_end_with_the_server_and_without_a_noise(server: HttpServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    stream = server.events("/events")
    server.run(server.server.stop())
    assert stream.has_ended
    assert not caplog.records
    stream.close()


def test_a_server_that_has_stopped_takes_no_connections(server: HttpServer):
    server.run(server.server.stop())
    with pytest.raises(ConnectionError):
        server.get("/health")


def certificate(directory: Path) -> Tls:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (directory / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Tls(cert=str(directory / "cert.pem"), key=str(directory / "key.pem"))


def test_tls_is_spoken_and_certificates_are_checked(serve: Serve, tmp_path: Path):
    tls = certificate(tmp_path)
    server = serve(tls=tls)
    trusting = open_broker(f"https://{server.where}?ca={tls.cert}")
    assert trusting.execute("default", c.Push("a", b"")).created
    trusting.close()
    doubting = open_broker(f"https://{server.where}?retry_s=0")
    with pytest.raises(Unreachable, match="certificate"):
        doubting.execute("default", c.ListQueues())
    doubting.close()
    careless = open_broker(f"https://{server.where}?verify=false")
    assert careless.execute("default", c.ListQueues()).names == ["a"]
    careless.close()
