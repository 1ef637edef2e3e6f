"""The listener itself: its line, its port, its keys, reflection, health and its end."""

import socket
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from stoker.brokers.connect import open_broker
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest, Unreachable
from stoker.proto import stoker_pb2 as pb
from stoker.server.config.tree import GrpcListener, ServerLimits, Tls
from tests.grpc.conftest import Serve
from tests.grpc.support import PATIENCE_S, Served, failure, with_changes

OURS = "stoker.v1.Queue"


def health(served: Served, name: str = "") -> str:
    stub = health_pb2_grpc.HealthStub(served.channel())
    status = stub.Check(health_pb2.HealthCheckRequest(service=name)).status
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


def test_the_line_says_where(served: Served):
    kind, address = served.line.split()
    assert kind == "grpc"
    host, port = address.split(":")
    assert host == "127.0.0.1"
    with socket.create_connection((host, int(port)), PATIENCE_S):
        pass


def test_a_port_that_is_taken_is_refused(served: Served, serve: Serve):
    """gRPC would share it: half of all calls would go to the other server."""
    with pytest.raises(InvalidRequest, match="cannot listen at"):
        serve(with_changes(grpc=GrpcListener(listen=served.address)))


def test_connections_over_the_limit_are_closed_and_those_that_are_there_go_on(serve: Serve):
    """gRPC accepts for itself: it is told how many connections it may have."""
    served = serve(with_changes(server=ServerLimits(connections_max=3, handshake_s=PATIENCE_S)))
    queue = served.queue()
    queue.Stats(pb.StatsRequest())
    host, port = served.address.split(":")
    with ExitStack() as held:
        silent = [held.enter_context(socket.create_connection((host, int(port)), PATIENCE_S)) for _ in range(5)]
        for one in silent[2:]:
            assert one.recv(65_536) == b""
        queue.Stats(pb.StatsRequest())


def test_reflection_tells_all_services_and_their_messages(served: Served):
    database = ProtoReflectionDescriptorDatabase(served.channel())
    services = set(database.get_services())
    assert {OURS, "grpc.health.v1.Health"} <= services
    file = database.FindFileContainingSymbol(OURS)
    (service,) = file.service
    assert [method.name for method in service.method] == [
        method.name for method in pb.DESCRIPTOR.services_by_name["Queue"].methods
    ]


def test_health_is_serving_until_the_server_stops(served: Served):
    assert [health(served, name) for name in ("", OURS)] == ["SERVING"] * 2
    stub = health_pb2_grpc.HealthStub(served.channel())
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=OURS), timeout=PATIENCE_S)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    (listener,) = served.server._listeners
    served.on_loop(lambda server: listener.stop_accepting())
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert [health(served, name) for name in ("", OURS)] == ["NOT_SERVING"] * 2


def test_a_server_that_stops_lets_its_workers_finish(served: Served):
    queue = served.queue()
    queue.Push(pb.PushRequest(queue="q", payload=b"x"))
    job = queue.Pull(pb.PullRequest(queues=["q"])).job
    (listener,) = served.server._listeners
    served.on_loop(lambda server: listener.stop_accepting())
    assert queue.Ack(pb.AckRequest(id=job.id, token=job.token)).count == 1


def test_a_server_that_has_stopped_answers_nobody(served: Served):
    queue = served.queue()
    queue.Stats(pb.StatsRequest())
    served.on_loop(lambda server: server.stop())
    assert failure(lambda: queue.Stats(pb.StatsRequest())).code() is grpc.StatusCode.UNAVAILABLE


# --- TLS -------------------------------------------------------------------------------------------------------------


def make_certificate(folder: Path, name: str) -> Tls:
    """One that signs itself, for this machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / f"{name}.pem", folder / f"{name}.key"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return Tls(cert=str(pem), key=str(secret))


def encrypted(tls: Tls) -> GrpcListener:
    return GrpcListener(listen="127.0.0.1:0", tls=tls)


def test_an_encrypted_listener_serves_those_who_trust_it(serve: Serve, tmp_path: Path):
    tls = make_certificate(tmp_path, "server")
    served = serve(with_changes(grpc=encrypted(tls)))
    with Client(open_broker(f"grpcs://{served.address}?ca={tls.cert}")) as client:
        assert client.push("q", b"x").created
    other = make_certificate(tmp_path, "other")
    broker = open_broker(f"grpcs://{served.address}?ca={other.cert}&retry_s=0&connect_timeout_s=5")
    with pytest.raises(Unreachable):
        Client(broker).push("q", b"x")
    broker.close()
    plain = open_broker(f"grpc://{served.address}?retry_s=0&connect_timeout_s=5")
    with pytest.raises(Unreachable):
        Client(plain).push("q", b"x")
    plain.close()


def test_a_listener_may_ask_clients_for_a_certificate(serve: Serve, tmp_path: Path):
    tls, client = make_certificate(tmp_path, "server"), make_certificate(tmp_path, "client")
    served = serve(with_changes(grpc=encrypted(Tls(cert=tls.cert, key=tls.key, client_ca=client.cert))))
    root = Path(tls.cert).read_bytes()
    mine = grpc.ssl_channel_credentials(root, Path(client.key).read_bytes(), Path(client.cert).read_bytes())
    with grpc.secure_channel(served.address, mine) as channel:
        assert served.queue(channel).Stats(pb.StatsRequest()).counts.waiting == 0
    with grpc.secure_channel(served.address, grpc.ssl_channel_credentials(root)) as channel:
        error = failure(lambda: served.queue(channel).Stats(pb.StatsRequest()))
        assert error.code() is grpc.StatusCode.UNAVAILABLE


def test_a_bad_certificate_is_named(serve: Serve, tmp_path: Path):
    tls = make_certificate(tmp_path, "server")
    Path(tls.cert).write_text("nothing")
    with pytest.raises(InvalidRequest, match=r"server\.pem"):
        serve(with_changes(grpc=encrypted(tls)))
