"""Keys and values in flashQ's words, which REST has none for."""

from typing import Any

from stoker.model import commands as c
from stoker.model import replies as r
from tests.conformance.dialect.speaking import NotInDialect, Speaker
from tests.conformance.dialect.words import bytes_of, value_of
from tests.reference_clients.calling import Answer
from tests.reference_clients.web import Rest


class Keys(Speaker):
    """What those say who keep something beside their jobs."""

    def _keys(self, cmd: str, tenant: str, **fields: Any) -> Answer:
        if isinstance(self._client, Rest):
            raise NotInDialect("keys and values")
        return self._call(cmd, tenant, **fields)

    def say_kv_set(self, tenant: str, command: c.KvSet) -> r.Done:
        value = value_of(command.value, command.codec)
        answer = self._keys("KVSET", tenant, key=command.key, value=value, ttl=command.ttl_ms, codec=command.codec)
        return r.Done(1, answer["level"])

    def say_kv_set_many(self, tenant: str, command: c.KvSetMany) -> r.Done:
        entries = [
            {"key": one.key, "value": value_of(one.value, one.codec), "ttl": one.ttl_ms, "codec": one.codec}
            for one in command.entries
        ]
        answer = self._keys("KVMSET", tenant, entries=entries)
        return r.Done(answer["count"], answer["level"])

    def say_kv_get(self, tenant: str, command: c.KvGet) -> r.KvValue:
        answer = self._keys("KVGET", tenant, key=command.key)
        if not answer["exists"]:
            return r.KvValue(False)
        expires_at = self._expiry(tenant, command.key).expires_at
        return r.KvValue(True, *bytes_of(answer["value"]), expires_at)

    def say_kv_get_many(self, tenant: str, command: c.KvGetMany) -> r.KvValues:
        values = self._keys("KVMGET", tenant, keys=list(command.keys))["values"]
        found = self._keys("KVEXISTS", tenant, keys=list(command.keys))["found"]
        return r.KvValues(
            [
                r.KvValue(True, *bytes_of(value), self._expiry(tenant, key).expires_at) if exists else r.KvValue(False)
                for key, value, exists in zip(command.keys, values, found, strict=True)
            ]
        )

    def say_kv_exists(self, tenant: str, command: c.KvExists) -> r.KvFound:
        return r.KvFound(self._keys("KVEXISTS", tenant, keys=list(command.keys))["found"])

    def say_kv_delete(self, tenant: str, command: c.KvDelete) -> r.Done:
        answer = self._keys("KVDEL", tenant, keys=list(command.keys))
        return r.Done(answer["count"], answer["level"])

    def say_kv_expire(self, tenant: str, command: c.KvExpire) -> r.KvExpiry:
        answer = self._keys("KVEXPIRE", tenant, key=command.key, ttl=command.ttl_ms)
        expires_at = self._expiry(tenant, command.key).expires_at if answer["exists"] else 0
        return r.KvExpiry(answer["exists"], expires_at, answer["level"])

    def say_kv_ttl(self, tenant: str, command: c.KvTtl) -> r.KvExpiry:
        return self._expiry(tenant, command.key)

    def _expiry(self, tenant: str, key: str) -> r.KvExpiry:
        ttl = self._keys("KVTTL", tenant, key=key)["ttl"]
        return r.KvExpiry(ttl != -2, self._world.now + ttl if ttl >= 0 else 0)

    def say_kv_keys(self, tenant: str, command: c.KvKeys) -> r.KvKeyPage:
        answer = self._keys("KVKEYS", tenant, pattern=command.pattern, after=command.after, limit=command.limit)
        return r.KvKeyPage(answer["keys"], answer["next_after"])

    def say_kv_increment(self, tenant: str, command: c.KvIncrement) -> r.KvNumber:
        answer = self._keys("KVINCR", tenant, key=command.key, by=command.by)
        return r.KvNumber(answer["value"], answer["level"])
