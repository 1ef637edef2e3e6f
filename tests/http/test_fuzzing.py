"""Whatever the description allows, and whatever it does not: no answer blames the server, and all are as described."""

from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from stoker.model.limits import Limits
from stoker.model.options import Settings
from stoker.server.http.openapi import describe
from tests.served.backing import Served

EXAMPLES_EACH = 3
UNENDING = ("/events", "/events/{queue}", "/events/job/{id}")


@schemathesis.serializer("application/x-ndjson")
def as_lines(_: Any, value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n" + repr(value).encode()


def operations() -> list[Any]:
    schema = schemathesis.openapi.from_dict(describe())
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    results: list[Any] = list(schema.get_all_operations())
    return [result.ok() for result in results if result.ok().path not in UNENDING]


@pytest.fixture(scope="module")
def address() -> Any:
    """In a process of its own, under a clock that moves when somebody waits: no pull waits for real."""
    served = Served("http", Settings(), Limits(), 2)
    broker: Any = served.broker
    yield str(broker.address)
    served.close()


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
def test_no_request_brings_the_server_down(address: str, operation: Any):
    @settings(
        max_examples=EXAMPLES_EACH,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def attempt(case: Any) -> None:
        response = case.call(base_url=address, timeout=60)
        case.validate_response(
            response, checks=[not_a_server_error, status_code_conformance, response_schema_conformance]
        )

    attempt()
