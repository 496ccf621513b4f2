"""The deadline that a client names, and the moment from which it counts."""

import asyncio
import json
import time

import httpx
import pytest

from cluster.deadline import MAX_TIMEOUT_S
from tests.router.front_fakes import Front, until

BODY = {"prompt": "x", "max_tokens": 3}


async def post(front: Front, body: dict[str, object], **headers: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{front.url}/v1/completions", json=body, headers=headers)


@pytest.mark.parametrize(
    ("header", "field", "expected_s"),
    [("12.5", None, 12.5), (None, 7, 7.0), ("12.5", 90.0, 12.5), ("90", 12.5, 12.5)],
)
async def test_the_header_and_the_field_set_one_deadline_the_sooner_counts(
    front, header, field, expected_s
):
    headers = {} if header is None else {"X-Request-Timeout": header}
    body = BODY if field is None else {**BODY, "timeout_s": field}
    assert (await post(front, body, **headers)).status_code == 200
    (asked,) = front.source.requests
    assert asked.limits.asked_s == expected_s
    assert asked.limits.to_first_token == asked.limits.whole


async def test_without_either_the_routers_limits_count(front):
    await post(front, BODY)
    (asked,) = front.source.requests
    arrived_s = asked.limits.arrived_s
    assert asked.limits.to_first_token.at_s == arrived_s + 30.0
    assert asked.limits.whole.at_s == arrived_s + MAX_TIMEOUT_S


@pytest.mark.parametrize("header", ["soon", "0", "-1", "nan", "inf", "1e9", ""])
async def test_a_deadline_that_is_none_is_refused_by_name(front, header):
    answer = await post(front, BODY, **{"X-Request-Timeout": header})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-Request-Timeout")
    assert front.source.requests == []


@pytest.mark.parametrize("field", [0, -3, 1e9])
async def test_a_field_that_is_no_deadline_is_refused_by_name(front, field):
    answer = await post(front, {**BODY, "timeout_s": field})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "timeout_s")


async def test_a_request_arrives_with_its_first_byte_and_not_when_it_is_understood(front):
    body = json.dumps(BODY).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
    await until(lambda: front.server.num_connections == 1, "the connection is there")
    (connection,) = front.server._server.server_state.connections
    await until(lambda: connection._bare_bytes > 0, "the head's first bytes are read")
    rest_sent_s = time.monotonic()
    head = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await reader.readuntil(b"\r\n\r\n")
    writer.close()
    (asked,) = front.source.requests
    assert asked.limits.arrived_s < rest_sent_s


async def test_a_second_request_on_a_connection_has_its_own_arrival(front):
    async with httpx.AsyncClient() as client:
        await client.post(f"{front.url}/v1/completions", json=BODY)
        between_s = time.monotonic()
        await client.post(f"{front.url}/v1/completions", json=BODY)
    first, second = front.source.requests
    assert first.limits.arrived_s < between_s < second.limits.arrived_s
