"""What a router knows of answers that a gateway passes by it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from protos import router_admin_pb2
from router.control.trace_message import traces_of
from router.dispatch import server_patience
from router.fleet.stage import RequestStage
from tests.router.front_fakes import until
from tests.router.picker.behind import Behind, behind
from tests.router.picker.gateway import BODY, Call, endpoint_of, gateway_call, refusal_of
from tests.router.picker.test_endpoint_picker import key_of, secret_of

EVENT = b'data: {"choices":[{"index":0,"text":"x"}]}\n\n'
END = b'data: {"choices":[],"usage":{"prompt_tokens":38,"completion_tokens":3}}\n\ndata: [DONE]\n\n'
USAGE = b'{"choices":[],"usage":{"prompt_tokens":38,"completion_tokens":3}}'
STREAMED = BODY | {"stream": True}


@asynccontextmanager
async def picked(router: Behind, body: dict[str, object]) -> AsyncIterator[Call]:
    async with gateway_call(router.picker) as call:
        assert endpoint_of(await call.ask(body))
        await call.rest_of_body()
        yield call


def num_timed(router: Behind) -> int:
    """Answers whose time to the first token was counted."""
    return sum(router.plane.metrics.ttft.counts())


def traces(router: Behind) -> list[router_admin_pb2.RequestTrace]:
    asked = router_admin_pb2.TraceRequest()
    return list(traces_of(router.plane.decisions, asked, lambda: 0.0))


async def test_it_is_among_those_under_way_with_its_server_and_its_stage() -> None:
    async with behind(1) as router:
        in_flight = router.plane.source.in_flight
        async with picked(router, STREAMED) as call:
            (taken,) = in_flight.in_order(newest_first=False)
            assert taken.stage is RequestStage.PREFILL
            assert taken.worker_ids == (router.plane.fleet.members[0].key.worker_id, "")
            await call.answered(200, EVENT, EVENT, ends=False)
            assert taken.stage is RequestStage.DECODE and taken.num_answer_tokens == 2
            await call.end()
        await until(lambda: not len(in_flight), "it is over")


async def test_its_trace_says_where_it_was_and_when() -> None:
    async with behind(1) as router:
        async with picked(router, STREAMED) as call:
            await call.answered(200, EVENT, EVENT, END)
            await call.end()
        (trace,) = traces(router)
        (leg,) = trace.legs
        assert leg.decode_worker == router.plane.fleet.members[0].key.worker_id
        assert 0 < leg.sent_ms <= leg.first_token_ms <= leg.ended_ms <= trace.ended_ms
        assert trace.first_token_ms >= leg.first_token_ms
        assert (trace.usage.completion_tokens, trace.arrival.end) == (3, "")


async def test_the_trace_of_one_that_its_server_failed_says_so() -> None:
    async with behind(1) as router:
        async with picked(router, STREAMED) as call:
            await call.answered(503, b"upstream connect error")
            await call.end()
        (trace,) = traces(router)
        assert trace.arrival.end == trace.legs[0].end == "server_error"
        assert "503" in trace.arrival.error


@pytest.mark.parametrize("pieces", [[USAGE], [USAGE[:9], USAGE[9:]]], ids=["one piece", "two"])
async def test_an_answer_that_is_not_streamed_has_no_time_to_a_first_token(
    pieces: list[bytes],
) -> None:
    async with behind(1) as router:
        before = router.plane.metrics.completion_tokens.value
        async with picked(router, BODY) as call:
            await call.answered(200, *pieces)
            await call.end()
        assert num_timed(router) == 0
        assert router.plane.metrics.completion_tokens.value == before + 3
        (trace,) = traces(router)
        assert not trace.HasField("first_token_ms") and not trace.HasField("timing")


async def test_a_stream_that_the_gateway_shows_as_a_whole_has_none_either() -> None:
    async with behind(1) as router:
        async with picked(router, STREAMED) as call:
            await call.answered(200, EVENT + EVENT + END)
            await call.end()
        assert num_timed(router) == 0
        async with picked(router, STREAMED) as call:
            await call.answered(200, EVENT, EVENT + END)
            await call.end()
        assert num_timed(router) == 1


@pytest.mark.parametrize("pieces", [[EVENT + EVENT + END], []], ids=["one piece", "its head alone"])
async def test_a_server_is_trusted_again_after_streams_that_nobody_saw_come(
    pieces: list[bytes],
) -> None:
    async with behind(1) as router:
        (item,) = router.plane.fleet.members
        item.cooldown.failed()
        await until(lambda: not item.cooldown.is_resting, "it is half open")
        async with picked(router, STREAMED) as call:
            await call.answered(200, *pieces, ends=bool(pieces))
            await call.end()
        await until(lambda: router.num_in_flight == 0, "it is over")
        assert item.cooldown.is_trusted and item.slow_start.has_room(1)


async def test_a_gateway_that_ends_its_call_before_any_answer_says_nothing_of_the_server() -> None:
    async with behind(1) as router:
        (item,) = router.plane.fleet.members
        item.cooldown.failed()
        await until(lambda: not item.cooldown.is_resting, "it is half open")
        async with picked(router, STREAMED) as call:
            await call.end()
        await until(lambda: router.num_in_flight == 0, "it is over")
        assert not item.cooldown.is_trusted


async def test_one_that_is_not_streamed_is_waited_for_while_its_server_works() -> None:
    """Longer than for a first token, which nobody could see."""
    async with behind(1, default_timeout_s=0.3) as router:
        server = router.servers[0]
        server.num_made, server.is_busy = 0, True
        await until(lambda: server.num_looks > 3, "its page was read")
        async with picked(router, BODY) as call:
            begun = server.num_looks
            await until(lambda: server.num_looks > begun + 20, "a second has passed")
            assert router.num_in_flight == 1
            await call.answered(200, USAGE)
            await call.end()
        assert router.plane.fleet.members[0].cooldown.is_trusted


async def test_an_answer_is_as_short_as_an_operator_has_it_now() -> None:
    async with behind(1, degrade="max-tokens=2@0") as router:
        async with picked(router, BODY):  # from which on the step is in force
            pass
        async with gateway_call(router.picker) as call:
            await call.ask(BODY | {"max_tokens": 90})
            sent = msgspec.json.decode(await call.rest_of_body())
            assert sent["max_tokens"] == 2


async def test_a_server_that_stands_gets_no_more_while_another_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_patience, "LEAST_S", 0.2)
    monkeypatch.setattr(server_patience, "SLACK", 0.0)
    async with behind(2) as router:
        frozen = router.servers[0].address
        async with gateway_call(router.picker) as waits:
            await waits.ask(STREAMED, among=[frozen])
            await waits.rest_of_body()
            members = router.plane.fleet.members
            item = next(m for m in members if frozen in m.key.worker_id)
            await until(lambda: not item.cooldown.is_trusted, "it is doubted")
            assert item.num_in_flight == 1
            async with gateway_call(router.picker) as call:
                assert endpoint_of(await call.ask(BODY)) == router.servers[1].address
            await waits.answered(200, EVENT, ends=False)
            assert item.cooldown.is_trusted


@pytest.mark.parametrize(
    "pieces", [None, (), (EVENT,)], ids=["nothing", "its head", "its first token"]
)
async def test_an_answer_ends_at_its_clients_deadline_at_the_server_too(
    pieces: tuple[bytes, ...] | None,
) -> None:
    async with behind(1) as router, gateway_call(router.picker) as call:
        assert endpoint_of(await call.ask(STREAMED, head={"x-request-timeout": "0.3"}))
        await call.rest_of_body()
        if pieces is not None:
            await call.answered(200, *pieces, ends=False)
        status, error = refusal_of(await call.hear())
        assert (status, error["code"]) == (504, "deadline_exceeded")
        await until(lambda: router.num_in_flight == 0, "it counts no more")
        (trace,) = traces(router)
        assert trace.arrival.end == "deadline_exceeded" and "0.3 s" in trace.arrival.error


async def test_an_answer_that_goes_on_unseen_costs_all_that_it_may_get(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key_of("a") | {"output_tokens_per_minute": 70}]}))
    head = {"authorization": f"Bearer {secret_of('a')}"}
    asked = STREAMED | {"max_tokens": 64}
    async with behind(1, api_keys=str(keys), stream_timeout_s=0.3) as router:
        async with gateway_call(router.picker) as call:
            await call.ask(asked, head=head)
            await call.rest_of_body()
            await call.answered(200, EVENT, ends=False)
            await until(lambda: router.num_in_flight == 0, "it is waited for no longer")
        async with gateway_call(router.picker) as call:
            assert refusal_of(await call.ask(asked, head=head))[0] == 429
