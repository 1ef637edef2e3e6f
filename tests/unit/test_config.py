"""Configuration: one tree, five sources, nothing guessed."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.brokers.local import LocalSettings
from stoker.journal.sqlite import JournalSettings
from stoker.model.errors import InvalidRequest
from stoker.model.limits import Limits
from stoker.server.config import (
    BadConfig,
    ListenAddress,
    Loaded,
    ServerConfig,
    Tls,
    check,
    load,
    settings_of,
    show,
    tls_context,
)
from stoker.server.config.addresses import parse_address
from stoker.server.config.keys import KEYS, environment_name
from stoker.server.config.tree import NOT_SETTINGS
from stoker.server.config.values import parse_number, unit_of

Load = Callable[..., Loaded]


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    """`load` in a directory of its own, with no environment but what is given."""

    def load_here(flags: dict[str, Any] | None = None, file: str | Path | None = None, **environ: str) -> Loaded:
        return load(flags, file=file, environ=environ, directory=tmp_path)

    return load_here


def refusal(loaded: Load, *args: Any, **environ: str) -> str:
    with pytest.raises(BadConfig) as caught:
        loaded(*args, **environ)
    return caught.value.message


# --- precedence --------------------------------------------------------------------------------------


def test_without_any_source_everything_is_a_default(loaded: Load):
    assert loaded().config == ServerConfig()
    assert {setting.source for setting in settings_of(loaded())} == {"default"}


def test_defaults_are_those_of_the_queue():
    config = ServerConfig()
    assert config.local == LocalSettings(journal=JournalSettings())
    assert config.limits == Limits()


def test_the_servers_own_defaults_are_on_loopback_and_unix_is_off():
    assert {name: str(address) for name, address in ServerConfig().listeners.items()} == {
        "tcp": "127.0.0.1:6789",
        "http": "127.0.0.1:6790",
        "grpc": "127.0.0.1:6791",
    }
    assert ServerConfig().unix.path is None


def test_each_source_wins_over_those_below_it(loaded: Load, tmp_path: Path):
    sources = {}

    def note() -> None:
        found = loaded(flags, **environ)
        sources[found.config.limits.tags_max] = found.sources["limits.tags_max"]

    flags: dict[str, Any] = {}
    environ: dict[str, str] = {}
    (tmp_path / "pyproject.toml").write_text("[tool.stoker.limits]\ntags_max = 1\n[tool.other]\nx = 1")
    note()
    (tmp_path / "stoker.toml").write_text("limits.tags_max = 2")
    note()
    environ["STOKER_LIMITS__TAGS_MAX"] = "3"
    note()
    flags["limits.tags_max"] = "4"
    note()
    assert sources == {
        1: "pyproject.toml [tool.stoker]",
        2: "stoker.toml",
        3: "STOKER_LIMITS__TAGS_MAX",
        4: "--set limits.tags_max",
    }


def test_sources_are_merged_key_by_key(loaded: Load, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text("[limits]\ntags_max = 2\nbatch_jobs_max = 5")
    limits = loaded(STOKER_LIMITS__TAGS_MAX="3").config.limits
    assert (limits.tags_max, limits.batch_jobs_max) == (3, 5)


def test_a_named_file_replaces_stoker_toml(loaded: Load, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text("processes = 2")
    other = tmp_path / "other.toml"
    other.write_text("shards = 4")
    for found in (loaded(file=other), loaded(STOKER_CONFIG=str(other))):
        assert (found.config.processes, found.config.shards) == (1, 4)
        assert found.sources == {"shards": str(other)}


def test_a_named_file_must_exist(loaded: Load, tmp_path: Path):
    assert "cannot be read" in refusal(loaded, None, tmp_path / "missing.toml")


def test_a_file_that_is_not_toml_is_refused_with_its_place(loaded: Load, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text("tcp = ")
    assert "stoker.toml: not TOML" in refusal(loaded)


def test_a_flag_that_was_not_given_changes_nothing(loaded: Load):
    assert loaded({"data": None, "tcp": None}).config == ServerConfig()


def test_loading_again_reads_the_files_again(loaded: Load, tmp_path: Path):
    first = loaded({"data": "x"})
    (tmp_path / "stoker.toml").write_text("limits.tags_max = 7")
    second = first.again()
    assert (second.config.data, second.config.limits.tags_max) == ("x", 7)


# --- every setting -----------------------------------------------------------------------------------


def test_every_setting_can_be_given_by_the_environment(loaded: Load):
    """Each with its default written out, all at once: nothing is unknown, nothing is misread."""
    environ = {
        environment_name(setting.key): msgspec.json.encode(setting.value).decode().strip('"')
        for setting in settings_of(loaded())
        if setting.value is not None and setting.key != "durability"
    }
    found = loaded(**environ)
    assert found.config == ServerConfig()
    assert set(found.sources.values()) == set(environ)


def test_what_is_shown_is_a_configuration_file(loaded: Load, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text(
        'data = "d"\n[auth.tenants."*"]\nqueues = 3\n[webhooks]\nallow = ["10.0.0.0/8"]'
    )
    first = loaded()
    shown = show(first)
    (tmp_path / "stoker.toml").write_text(shown)
    assert loaded().config == first.config
    assert 'auth.tenants."*".queues = 3' in shown
    assert set(tomllib.loads(shown)["limits"]) == set(Limits.__struct_fields__)


def test_fields_for_tests_are_no_settings(loaded: Load):
    assert not {".".join(place) for place in KEYS} & NOT_SETTINGS
    assert "there is no such setting" in refusal(loaded, STOKER_JOURNAL__VFS="x")


def test_a_section_that_is_off_by_default_is_made_by_its_first_setting(loaded: Load, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text('journal.backups.url = "/backups"')
    backups = loaded(STOKER_JOURNAL__BACKUPS__INTERVAL_S="1h").config.journal.backups
    assert backups is not None
    assert (backups.url, backups.interval_s, backups.keep) == ("/backups", 3_600, 7)


def test_a_section_that_lacks_what_it_needs_says_so(loaded: Load):
    assert "journal.backups.url is missing" in refusal(loaded, STOKER_JOURNAL__BACKUPS__KEEP="3")


def test_tables_of_names_are_merged_by_name(loaded: Load, tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text("[tool.stoker.auth.tenants.a]\nqueues = 1")
    (tmp_path / "stoker.toml").write_text('[auth.tenants.a]\nbytes = "1GiB"\n[auth.tenants.b]\nqueues = 2')
    tenants = loaded().config.auth.tenants
    assert (tenants["a"].queues, tenants["a"].bytes, tenants["b"].queues) == (1, 1 << 30, 2)


def test_a_listener_may_be_written_short_or_as_a_table(loaded: Load, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text(
        'http = "127.0.0.1:1"\n[tcp]\nlisten = "off"\n[unix]\nlisten="/s"\nmode="660"'
    )
    config = loaded(STOKER_GRPC="localhost:0").config
    assert config.listeners == {"http": ListenAddress("127.0.0.1", 1), "grpc": ListenAddress("localhost", 0)}
    assert (config.unix.path, config.unix.permissions) == ("/s", 0o660)


# --- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("limits.batch_job_max = 5", "limits.batch_job_max (stoker.toml): there is no such setting;"
         " did you mean limits.batch_jobs_max?"),
        ("batch_jobs_max = 5", "did you mean limits.batch_jobs_max?"),
        ("[limit]\nbatch_jobs_max = 5", "did you mean limits?"),
        ('[auth.tenants.a]\nqueue = 1', "did you mean auth.tenants.a.queues?"),
        ('processes = "two"', 'processes = "two" (stoker.toml): expected a number'),
        ("processes = true", "processes = true (stoker.toml): expected a whole number"),
        ("processes = 0", "processes = 0 (stoker.toml): expected `int` >= 1"),
        ("limits.tags_max = -1", "limits.tags_max = -1 (stoker.toml): expected a number that is not negative"),
        ("limits = 5", "limits = 5 (stoker.toml): expected a table"),
        ("data = 5", "data = 5 (stoker.toml): expected"),
        ('durability = "maybe"', "expected one of memory, commit, fsync"),
        ('stop.drain_s = "30 parsecs"', 'expected text like "500ms"'),
        ('server.frame_bytes_max = "1s"', 'expected text like "64MiB"'),
        ('limits.wait_ms_max = "0.5ms"', "expected a whole number of ms"),
        ('tcp = "6789"', 'tcp.listen = "6789" (stoker.toml): expected HOST:PORT'),
        ('tcp = "127.0.0.1:66000"', "a port goes up to 65535"),
        ('tcp.tls.cert = "c"', "TLS needs both"),
        ('tcp.tls.client_ca = "c"', "client_ca needs TLS"),
        ('unix.mode = "rw"', "unix.mode"),
        ("shards = 3", "expected a power of two"),
        ("shards = 2\nprocesses = 4", "only 2 shards"),
        ('durability = "fsync"', "without a data directory nothing is stored"),
        ('webhooks.allow = ["10.0.0.1/8"]', "expected networks"),
        ('auth.jwt.keys = [{ algorithm = "none" }]', "auth.jwt.keys"),
        ('auth.jwt.keys = [{ algorithm = "HS256", kye = "x" }]', "unknown field `kye`"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_key_value_and_source(loaded: Load, tmp_path: Path, text: str, expected: str):
    (tmp_path / "stoker.toml").write_text(text)
    assert expected in refusal(loaded)


def test_all_problems_are_told_at_once(loaded: Load, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text("tpc = 1\nprocesses = 0")
    (tmp_path / "pyproject.toml").write_text("[tool.stoker]\nhtpp = 1")
    assert len(refusal(loaded, STOKER_LOG__LEVEL="loud").splitlines()) == 4


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("STOKER_TPC", "did you mean STOKER_TCP?"),
        ("STOKER_LIMIT__TAGS_MAX", "did you mean STOKER_LIMITS__TAGS_MAX?"),
        ("STOKER_LIMITS_TAGS_MAX", "did you mean STOKER_LIMITS__TAGS_MAX?"),
        ("STOKER_XYZZY", "there is no such setting"),
    ],
)
def test_unknown_variables_are_refused_with_the_nearest_name(loaded: Load, name: str, hint: str):
    assert hint in refusal(loaded, **{name: "1"})


@pytest.mark.parametrize(
    "name",
    ["STOKER_URL", "STOKER_TOKEN", "STOKER_SERVICE_HOST", "STOKER_PORT", "STOKER_PORT_6789_TCP_ADDR", "STOKER_SOAK"],
)
def test_variables_that_others_read_or_set_are_left_alone(loaded: Load, name: str):
    """A service called `stoker` makes Kubernetes set some of them."""
    assert loaded(**{name: "tcp://10.0.0.1:6789"}).config == ServerConfig()


# --- secrets -----------------------------------------------------------------------------------------


def test_secrets_are_never_shown(loaded: Load, tmp_path: Path):
    (tmp_path / "stoker.toml").write_text(
        'auth.tokens = ["hush-1"]\nauth.entitlement_secrets = ["hush-2"]\n'
        'auth.jwt.keys = [{ algorithm = "HS256", key = "hush-3" }]'
    )
    found = loaded(STOKER_AUTH__TOKENS="hush-1")
    assert "hush" not in show(found) + repr(found)
    assert 'key = "********"' in show(found)
    assert found.config.auth.tokens == ("hush-1",)


@pytest.mark.parametrize("text", ['auth.tokens = [1, "hush"]', 'auth.jwt.keys = [{ key = "hush" }]'])
def test_errors_do_not_tell_secrets(loaded: Load, tmp_path: Path, text: str):
    (tmp_path / "stoker.toml").write_text(text)
    message = refusal(loaded)
    assert "stoker.toml" in message
    assert "hush" not in message


def test_a_secret_may_stand_in_a_file_of_its_own(loaded: Load, tmp_path: Path):
    (tmp_path / "secret").write_text("one,two\n")
    found = loaded(STOKER_AUTH__ENTITLEMENT_SECRETS_FILE=str(tmp_path / "secret"))
    assert found.config.auth.entitlement_secrets == ("one", "two")
    assert found.sources == {"auth.entitlement_secrets": "STOKER_AUTH__ENTITLEMENT_SECRETS_FILE"}
    assert "cannot be read" in refusal(loaded, STOKER_AUTH__ENTITLEMENT_SECRETS_FILE=str(tmp_path / "none"))


def test_only_secrets_are_read_from_files(loaded: Load):
    assert "there is no such setting" in refusal(loaded, STOKER_DATA_FILE="x")
    assert loaded(STOKER_AUTH__TOKENS_FILE="tokens").config.auth.tokens_file == "tokens"


# --- open doors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tcp", "http", "grpc"])
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "example.org"])
def test_an_open_server_is_not_put_on_a_network(loaded: Load, name: str, host: str):
    message = refusal(loaded, {name: f"{host}:7000"})
    assert message.startswith(f'{name}.listen = "{host}:7000"')
    assert "stoker token create" in message


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"])
def test_an_open_server_may_listen_on_loopback(loaded: Load, host: str):
    assert loaded({"tcp": f"{host}:7000"}).config.tcp.listen == f"{host}:7000"


@pytest.mark.parametrize(
    "environ",
    [
        {"STOKER_INSECURE": "true"},
        {"STOKER_AUTH__TOKENS": "a"},
        {"STOKER_AUTH__TOKENS_FILE": "tokens"},
        {"STOKER_AUTH__JWT__JWKS_FILE": "jwks.json"},
    ],
)
def test_with_authentication_or_on_request_it_may_listen_anywhere(loaded: Load, environ: dict[str, str]):
    assert loaded({"tcp": "0.0.0.0:7000"}, **environ).config.listeners["tcp"] == ListenAddress("0.0.0.0", 7000)


def test_entitlements_and_quotas_authenticate_nobody(loaded: Load):
    assert refusal(loaded, {"tcp": "0.0.0.0:7000"}, STOKER_AUTH__ENTITLEMENT_SECRETS="x")


def test_a_configuration_made_in_code_is_checked_by_hand():
    assert check(ServerConfig(durability="fsync")) == []
    assert check(ServerConfig(shards=3)) != []


# --- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "kind", "value"),
    [
        ("30", "drain_s", float, 30.0),
        ("30s", "drain_s", float, 30.0),
        ("1m30s", "drain_s", float, 90.0),
        ("500ms", "drain_s", float, 0.5),
        ("30s", "lease_ms_min", int, 30_000),
        ("7d", "age_ms_max", int, 604_800_000),
        ("1.5h", "wait_ms", int, 5_400_000),
        ("64MiB", "frame_bytes_max", int, 1 << 26),
        ("64 mib", "frame_bytes_max", int, 1 << 26),
        ("10MB", "frame_bytes_max", int, 10_000_000),
        ("10_000", "tags_max", int, 10_000),
    ],
)
def test_numbers_are_read_in_the_unit_of_the_name(text: str, name: str, kind: Any, value: float):
    found = parse_number(text, unit_of(name), kind)
    assert found == value
    assert type(found) is kind


@pytest.mark.parametrize("text", ["", "MiB", "30s", "1e3", "-1", "1KiB2", "1KiB 2x", "\u0663"])
def test_what_is_no_size_is_refused(text: str):
    with pytest.raises(ValueError, match="expected"):
        parse_number(text, "bytes", int)


@pytest.mark.parametrize(
    "text", ["", ":1", "host", "host:", "host:-1", "::1:80", "[::1]", "a b:1", "http://h:1", "h:1/"]
)
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(InvalidRequest, match="expected HOST:PORT"):
        parse_address(text)


def test_addresses_read_as_they_are_written():
    for text in ("127.0.0.1:0", "[::1]:6789", "example.org:65535"):
        assert str(parse_address(text)) == text


def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path):
    (tmp_path / "cert").write_text("no certificate")
    with pytest.raises(InvalidRequest, match="TLS cannot use"):
        tls_context(Tls(cert=str(tmp_path / "cert"), key=str(tmp_path / "cert")))
    assert tls_context(Tls()) is None
