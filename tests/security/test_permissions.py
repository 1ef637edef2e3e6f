"""S10: a token may do exactly what the table of commands says, in both dialects."""

from pathlib import Path

import pytest

from stoker.model.command_table import PERMISSIONS, Permission
from stoker.wire import flashq
from stoker.wire.native_commands import ROWS
from tests.security.examples import NOT_SENT, Things, flashq_examples, furnish, native_examples, requests_of
from tests.security.support import Talker, secured, snapshot
from tests.served.on_loop import run

TABLE: dict[str, Permission | None] = {
    **{name: row.permission for name, row in ROWS.items()},
    **{name: row.permission for name, row in flashq.ROWS.items()},
    "subscribe": "read",
    "unsubscribe": "read",
}


def test_every_command_has_an_example():
    assert set(native_examples(Things())) == set(ROWS)
    assert set(flashq_examples(Things())) | set(NOT_SENT) == set(flashq.ROWS)


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_a_token_with_one_permission_may_exactly_what_the_table_says(permission: Permission, tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            things = furnish(server.place.broker, "acme")
            talker = await server.talker("acme", [permission])
            before = snapshot(server.place.broker, "acme")
            others = [one for one in requests_of(things) if TABLE[one[0]] not in (permission, None)]
            others += [(cmd, {}) for cmd in ("subscribe", "unsubscribe") if permission != "read"]
            answers = {cmd: (await talker(cmd, **fields))["code"] for cmd, fields in others}
            assert answers == dict.fromkeys(answers, "forbidden")
            assert snapshot(server.place.broker, "acme") == before
            mine = [one for one in requests_of(things) if TABLE[one[0]] in (permission, None)]
            codes = {cmd: (await talker(cmd, **fields)).get("code") for cmd, fields in mine}
            assert not {"forbidden", "unauthenticated"} & set(codes.values())
            assert len(codes) > 10
            assert sum(code is None for code in codes.values()) > len(codes) // 2

    run(main)


def test_second_names_need_the_same_permission(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            things = furnish(server.place.broker, "acme")
            examples = flashq_examples(things)
            talkers = {permission: await server.talker("acme", [permission]) for permission in PERMISSIONS}
            for row in flashq.ROWS.values():
                for alias in row.aliases:
                    for permission, talker in talkers.items():
                        code = (await talker(alias, **examples[row.name])).get("code")
                        assert (code == "forbidden") == (permission != row.permission), (alias, permission, code)

    run(main)


def test_nobody_may_anything_without_a_token(tmp_path: Path):
    async def main() -> None:
        async with secured(tmp_path) as server:
            things = furnish(server.place.broker, "default")
            before = snapshot(server.place.broker, "default")
            stranger = Talker(await server.place.peer())
            requests = [*requests_of(things), ("hello", {}), ("subscribe", {}), ("AUTH", {"token": "guess"})]
            codes = {cmd: (await stranger(cmd, **fields)).get("code") for cmd, fields in requests}
            assert codes == dict.fromkeys(codes, "unauthenticated")
            assert (await stranger("AUTH", token=server.token("default")))["ok"]
            assert (await stranger("get_job", body={"id": things.active}))["ok"]
            assert snapshot(server.place.broker, "default") == before

    run(main)
