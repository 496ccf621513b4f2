"""A gateway's calls: what is picked, refused and counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc
import msgspec
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec import structs

from cluster.common_options import VllmOptions
from cluster.config import RouterOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.locks import check_router
from protos import ext_proc_pb2 as wire
from router.picker.picker_port import SERVICE_NAME
from router.tenants.api_key import digest_of
from tests.router.front_fakes import until
from tests.router.picker.behind import Behind, behind
from tests.router.picker.gateway import (
    BODY,
    common_of,
    endpoint_of,
    gateway_call,
    header_of,
    refusal_of,
)

BOTH_MODES = pytest.mark.parametrize(
    "mode", [wire.BUFFERED, wire.FULL_DUPLEX_STREAMED], ids=["buffered", "full duplex"]
)
USAGE = b'{"choices":[],"usage":{"prompt_tokens":38,"completion_tokens":3}}'


def prompt(word: str) -> dict[str, object]:
    """Of many blocks, and unlike others from its first token on."""
    return BODY | {"prompt": f"{word} and so on, for quite some blocks of tokens. " * 8}


async def picked_for(router: Behind, body: dict[str, object], **given: object) -> str:
    """Where a request goes that is then answered."""
    async with gateway_call(router.picker) as call:
        reply = await call.ask(body, **given)  # type: ignore[arg-type]
        endpoint = endpoint_of(reply)
        await call.rest_of_body()
        await call.answered(200, USAGE)
        await call.end()
    return endpoint


@BOTH_MODES
async def test_a_request_goes_to_a_server_under_the_names_of_that_server(mode: int) -> None:
    async with behind(1) as router, gateway_call(router.picker, mode) as call:
        asked = BODY | {"model": "byte-model", "cache_salt": "mine"}
        head = {"authorization": "Bearer sk-of-the-client"}
        reply = await call.ask(asked, piece=7 if mode != wire.BUFFERED else 1 << 20, head=head)
        assert endpoint_of(reply) == router.servers[0].address
        mutation = common_of(reply)
        assert "authorization" in mutation.header_mutation.remove_headers
        body = mutation.body_mutation.body or await call.rest_of_body()
        assert header_of(reply, "content-length") == str(len(body))
        sent = msgspec.json.decode(body)
        assert sent["model"] == "smollm2" and len(sent["cache_salt"]) >= 32
        assert {**sent, "model": None, "cache_salt": None} == {
            **asked,
            "model": None,
            "cache_salt": None,
        }
        assert router.num_in_flight == 1
        await call.answered(200, USAGE)
        await call.end()
        assert router.num_in_flight == 0


async def test_who_asks_for_models_is_told_the_routers_own() -> None:
    async with behind(1) as router, gateway_call(router.picker) as call:
        reply = await call.ask(b"", head={":method": "GET", ":path": "/v1/models"})
        answer = reply.immediate_response
        assert answer.status.code == 200
        assert [each["id"] for each in msgspec.json.decode(answer.body)["data"]] == ["byte-model"]


async def test_a_request_with_trailers_goes_on_with_them() -> None:
    async with behind(1) as router, gateway_call(router.picker) as call:
        assert endpoint_of(await call.ask(BODY, has_trailers=True))
        piece = (await call.hear()).request_body.response.body_mutation.streamed_response
        assert piece.body and not piece.end_of_stream
        assert (await call.hear()).WhichOneof("response") == "request_trailers"
        await call.answered(200, USAGE)
        await call.end()


async def test_what_nobody_here_knows_does_not_go_on_to_a_server() -> None:
    asked = BODY | {"stop": ["x"]}
    async with behind(1, unknown_fields="warn") as router, gateway_call(router.picker) as call:
        await call.ask(asked | {"no_such_field": 1})
        sent = msgspec.json.decode(await call.rest_of_body())
    assert sent["stop"] == ["x"] and "no_such_field" not in sent


async def test_what_only_operators_may_say_by_headers_is_taken_away() -> None:
    """vLLM lets a header name a request's priority over that of its body, and its rank."""
    head = {"x-vllm-priority": "-100", "x-data-parallel-rank": "1", "x-session-id": "anothers"}
    async with behind(1) as router, gateway_call(router.picker) as call:
        removed = common_of(await call.ask(BODY, head=head)).header_mutation.remove_headers
        await call.rest_of_body()
    assert {*head, "endpoint-load-metrics-format"} <= set(removed)


async def test_nobody_reads_the_blocks_of_another_request() -> None:
    asked = BODY | {"kv_transfer_params": {"remote_block_ids": [1]}}
    async with behind(1, unknown_fields="warn") as router, gateway_call(router.picker) as call:
        status, error = refusal_of(await call.ask(asked))
        assert (status, error["param"]) == (400, "kv_transfer_params")


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with behind(1, header_timeout_s=0.2) as router, gateway_call(router.picker) as call:
        status, error = refusal_of(await call.ask(b'{"prompt":', ends=False))
        assert (status, error["code"]) == (408, "request_timeout")


async def homes_of(router: Behind) -> dict[str, str]:
    """Prefixes of which each server has had one, by the gateway's own choice."""
    homes = {}
    for word, server in zip(("one", "two", "six"), router.servers, strict=False):
        homes[word] = await picked_for(router, prompt(word), among=[server.address])
    return homes


async def test_the_next_request_of_a_prefix_goes_where_the_first_went() -> None:
    async with behind(3) as router:
        homes = await homes_of(router)
        for _ in range(3):
            for word, home in homes.items():
                assert await picked_for(router, prompt(word)) == home


async def test_tenants_do_not_meet_in_a_servers_cache(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key_of("a"), key_of("b")]}))
    salts = []
    async with behind(1, api_keys=str(keys)) as router:
        for tenant in ("a", "b", "a"):
            async with gateway_call(router.picker) as call:
                await call.ask(BODY, head={"authorization": f"Bearer {secret_of(tenant)}"})
                salts.append(msgspec.json.decode(await call.rest_of_body())["cache_salt"])
        assert salts[0] == salts[2] != salts[1]


async def test_at_a_server_that_reads_from_others_a_pick_finds_nothing_that_was_read() -> None:
    async with behind(1, role="decode") as router:
        key = router.plane.fleet.with_role(Role.DECODE)[0].key
        fleet = router.plane._vllm
        assert fleet is not None and (server := fleet.server_of(key)) is not None
        salts = []
        for _ in range(2):
            async with gateway_call(router.picker) as call:
                await call.ask(BODY)
                salts.append(msgspec.json.decode(await call.rest_of_body())["cache_salt"])
            assert not salts[-1].endswith(server.salt_end)
            server.doubt_cache()
        assert salts[0] == salts[1] and salts[0].endswith(server.passed_end)


@pytest.mark.parametrize(("role", "is_shared"), [("decode", False), ("both", True)])
async def test_at_such_a_server_nobody_counts_on_what_requests_of_the_other_kind_have_left(
    role: str, is_shared: bool
) -> None:
    async with behind(1, role=role) as router, gateway_call(router.picker) as call:
        await call.ask(prompt("Once"))
        await call.rest_of_body()
        [taken] = router.plane.source.in_flight.in_order(newest_first=True)
        assert taken.under_way is not None
        passed = taken.under_way.request
        ours = structs.replace(passed, apart_at=frozenset())
        key = router.plane.fleet.with_role(Role.DECODE)[0].key
        found = [
            router.plane.desk.decide(asked, frozenset()).cached_at(key) for asked in (passed, ours)
        ]
        assert found[0] > 0
        assert found[1] == (found[0] if is_shared else 0)


async def test_who_shows_no_key_or_asks_for_more_than_generations_is_refused(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key_of("a")]}))
    async with behind(1, api_keys=str(keys)) as router:
        async with gateway_call(router.picker) as call:
            status, error = refusal_of(await call.ask(BODY))
            assert (status, error["code"]) == (401, "invalid_api_key")
        for path, method, status in (
            ("/metrics", "GET", 404),
            ("/v1/load_lora_adapter", "POST", 404),
            ("/v1/completions", "GET", 405),
        ):
            head = {":path": path, ":method": method}
            head["authorization"] = f"Bearer {secret_of('a')}"
            async with gateway_call(router.picker) as call:
                assert refusal_of(await call.ask(BODY, head=head))[0] == status


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, None),
        ({"prompt": "x", "tempature": 1}, 400, "tempature"),
        ({"prompt": ["x", "y"]}, 400, "prompt"),
        ({"prompt": "x", "model": "other"}, 404, "model"),
        ({"prompt": "x" * 600}, 400, "prompt"),
        (b"x" * 3000, 413, None),
    ],
    ids=["no json", "a typo", "two prompts", "another model", "too long", "too large"],
)
@BOTH_MODES
async def test_a_body_is_refused_as_at_the_http_door(
    body: bytes | dict[str, object], status: int, param: str | None, mode: int
) -> None:
    async with (
        behind(1, max_body_bytes=2000) as router,
        gateway_call(router.picker, mode) as call,
    ):
        found, error = refusal_of(await call.ask(body))
        assert found == status
        assert error["param"] == param
        assert not router.servers[0].asked and router.num_in_flight == 0


async def test_who_finds_the_line_full_is_refused_with_a_wait() -> None:
    async with (
        behind(1, max_running_requests=1, max_queued_requests=1) as router,
        gateway_call(router.picker) as first,
        gateway_call(router.picker) as waits,
        gateway_call(router.picker) as late,
    ):
        await first.ask(BODY)
        waiting = asyncio.create_task(waits.ask(BODY))
        admission = router.plane.admission
        await until(lambda: admission.num_queued == 1, "the second one waits")
        reply = await late.ask(BODY)
        status, error = refusal_of(reply)
        assert (status, error["code"]) == (429, "queue_full")
        told = {o.header.key for o in reply.immediate_response.headers.set_headers}
        assert "retry-after" in told
        first.break_off()
        assert endpoint_of(await waiting)


async def test_the_gateways_own_choice_of_servers_is_kept_to() -> None:
    async with behind(3) as router:
        allowed = router.servers[2].address
        for number in range(3):
            asked = prompt(f"{number}")
            assert await picked_for(router, asked, among=[allowed]) == allowed
        async with gateway_call(router.picker) as call:
            status, error = refusal_of(await call.ask(BODY, among=["10.1.2.3:8000"]))
            assert (status, error["code"]) == (503, "no_worker")


async def test_a_gateway_that_shows_no_bodies_is_told_what_to_set() -> None:
    for mode in (wire.NONE, wire.STREAMED, wire.BUFFERED_PARTIAL):
        async with behind(1) as router, gateway_call(router.picker, mode) as call:
            status, error = refusal_of(await call.ask(BODY))
            assert status == 503 and wire.BodySendMode.Name(mode) in error["message"]


async def test_a_key_pays_for_what_was_made_and_for_nothing_that_failed(tmp_path: Path) -> None:
    """Of 4 output tokens a minute, 3 are asked for each time: what is not made is given back."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key_of("a") | {"output_tokens_per_minute": 4}]}))
    head = {"authorization": f"Bearer {secret_of('a')}"}
    event = b'data: {"choices":[{}]}\n\n'
    async with behind(1, api_keys=str(keys)) as router:

        async def asked(status: int, *pieces: bytes) -> wire.ProcessingResponse:
            async with gateway_call(router.picker) as call:
                reply = await call.ask(BODY, head=head)
                if reply.WhichOneof("response") == "request_headers":
                    await call.rest_of_body()
                    await call.answered(status, *pieces)
                    await call.end()
                return reply

        assert endpoint_of(await asked(500, b"{}"))
        assert endpoint_of(await asked(200, event, b"data: [DONE]\n\n"))
        assert endpoint_of(await asked(200, USAGE))
        status, error = refusal_of(await asked(200, USAGE))
        assert (status, error["code"]) == (429, "rate_limit_exceeded")


async def test_an_answer_that_was_not_shown_costs_what_answers_usually_have(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key_of("a") | {"output_tokens_per_minute": 4}]}))
    head = {"authorization": f"Bearer {secret_of('a')}"}
    async with behind(1, api_keys=str(keys)) as router:
        async with gateway_call(router.picker) as call:
            await call.ask(BODY, head=head)
            await call.rest_of_body()
            await call.end()
        async with gateway_call(router.picker) as call:
            assert refusal_of(await call.ask(BODY, head=head))[0] == 429


async def test_a_client_that_leaves_is_counted_no_more() -> None:
    async with behind(1) as router:
        async with gateway_call(router.picker) as call:
            await call.ask(BODY)
            assert router.num_in_flight == 1
            call.break_off()
            await until(lambda: router.num_in_flight == 0, "its place is free")
        item = router.plane.fleet.members[0]
        assert not item.room.promised_seqs and not item.prompts.num_turns
        assert router.plane.admission.num_running == 0


async def test_a_server_that_fails_is_given_a_rest() -> None:
    async with behind(2) as router:
        first = router.servers[0].address
        for _ in range(4):
            async with gateway_call(router.picker) as call:
                await call.ask(BODY, among=[first])
                await call.rest_of_body()
                await call.answered(503, b"upstream connect error")
                await call.end()
        assert await picked_for(router, BODY) == router.servers[1].address


async def test_of_a_server_that_says_nothing_nothing_is_learnt() -> None:
    async with behind(1) as router:
        before = router.plane.estimates.completion_tokens
        async with gateway_call(router.picker) as call:
            await call.ask(BODY, head={"x-request-timeout": "0.3"})
            await call.rest_of_body()
            await until(lambda: router.num_in_flight == 0, "it is waited for no longer")
        assert router.plane.estimates.completion_tokens == before


async def test_a_gateway_hears_whether_the_picker_is_ready() -> None:
    serving = health_pb2.HealthCheckResponse.SERVING
    async with behind(1) as router, grpc.aio.insecure_channel(router.picker) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("liveness", "readiness", SERVICE_NAME):
            async with asyncio.timeout(30):
                async for answer in stub.Watch(health_pb2.HealthCheckRequest(service=name)):
                    if answer.status == serving:
                        break


def test_a_gateways_port_needs_servers_and_a_lock() -> None:
    with pytest.raises(ConfigError, match="--vllm"):
        RouterOptions(ext_proc_port=9002)
    vllm = VllmOptions(vllm="http://10.0.0.1:8000")
    with pytest.raises(ConfigError, match="--ext-proc-port 9002"):
        check_router(RouterOptions(host="0.0.0.0", ext_proc_port=9002, vllm_servers=vllm))


def secret_of(tenant: str) -> str:
    return f"sk-{tenant * 8}-{tenant * 43}"


def key_of(tenant: str) -> dict[str, object]:
    return {
        "id": tenant * 8,
        "digest": digest_of(secret_of(tenant)),
        "tenant": tenant,
        "created": "2026-01-01T00:00:00Z",
    }
