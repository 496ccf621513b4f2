"""The gRPC front: the same pipeline, typed errors, deadlines, health and reflection."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from cluster.adapter import Adapter
from cluster.deadline import Clock
from cluster.errors import QueueFull
from cluster.generation import FinishReason, GeneratedToken
from cluster.identity import OWNER_BYTES
from cluster.process.lifespan import Lifespan, ProcessState
from cluster.retry_after import DEFAULT_RETRY_AFTER_S, JITTER_SHARE
from cluster.rpc import open_channel
from cluster.world import World
from protos import generation_pb2, inference_pb2, inference_pb2_grpc
from router.dispatch.stream import ChoiceTokens, RoutedRequest, StreamEvent
from router.dispatch.time_limits import DefaultTimes
from router.front.body_account import BodyAccount
from router.front.doors import DoorContext
from router.front.limits import DoorLimits
from router.front.pipeline import CompletionPipeline
from router.front.served_model import ServedModel
from router.front.text_work import TextWork
from router.grpc_front.grpc_door import GrpcDoor, GrpcPort
from router.grpc_front.inference_service import SERVICE_NAME
from router.grpc_front.public_port import CONTROL_MESSAGE_BYTES, PublicPort
from router.tenants.keyring import Keyring, OpenDoor
from router.tenants.tenant import Tenant
from router.text.choice import MAX_DELTA_LOGPROBS
from router.text_worker.in_process import InProcessText
from tests.free_ports import free_port
from tests.manual_clock import ManualClock
from tests.router.front_fakes import (
    EOS,
    MODEL,
    FakeSource,
    Script,
    byte_model,
    completed,
    fails,
    hangs,
    resumption_over,
    says,
    small_limits,
    talks_forever,
    until,
)
from tests.router.grammar.matching import accepts

TAG = {
    "type": "structural_tag",
    "triggers": ["<f="],
    "structures": [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}],
}


@dataclass
class GrpcFront:
    """A running gRPC front and a channel to it."""

    source: FakeSource
    in_flight: Lifespan
    server: GrpcDoor
    target: str
    channel: grpc.aio.Channel
    stub: Any


@asynccontextmanager
async def running_grpc(
    script: Script,
    limits: DoorLimits | None = None,
    bodies: BodyAccount | None = None,
    *,
    clock: Clock = time.monotonic,
    fleet_port: int | None = None,
    keeps_streams: bool = False,
    model: ServedModel | None = None,
    keyring: Keyring | None = None,
    texts: TextWork | None = None,
    **numbers: int,
) -> AsyncIterator[GrpcFront]:
    model = model or byte_model()
    source = FakeSource(script)
    pipeline = CompletionPipeline(model, source, texts or InProcessText(model))
    in_flight = Lifespan.opened("router")
    times = DefaultTimes(first_token_s=30.0, between_tokens_s=30.0, clock=clock)
    door = DoorContext(
        model=model,
        pipeline=pipeline,
        in_flight=in_flight,
        door_limits=limits or small_limits(),
        bodies=bodies or BodyAccount(1 << 30),
        times=times,
        resumption=resumption_over(pipeline) if keeps_streams else None,
        keyring=keyring or OpenDoor(),
    )
    max_streams = int(door.door_limits.max_connections)
    public = PublicPort(**{"max_message_bytes": 1 << 20, "max_streams": max_streams, **numbers})
    ports = GrpcPort(0), None if fleet_port is None else GrpcPort(fleet_port)
    grpc_door = GrpcDoor(ports, public, door, World())
    port = await grpc_door.start()
    target = f"127.0.0.1:{port}"
    channel = open_channel(target)
    try:
        stub = inference_pb2_grpc.InferenceStub(channel)
        yield GrpcFront(source, in_flight, grpc_door, target, channel, stub)
    finally:
        await channel.close()
        await grpc_door.stop(0)


def text_request(text: str = "Hi", **sampling: Any) -> inference_pb2.GenerateRequest:
    params = generation_pb2.SamplingParams(**sampling)
    return inference_pb2.GenerateRequest(text=text, request_id="mine", sampling=params)


async def failure_of(call: Any) -> tuple[grpc.StatusCode, str, str]:
    """(status, stable code, message) of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call:
            pass
    info = error_details_pb2.ErrorInfo()
    status = rpc_status.from_call(caught.value)
    if status is not None:
        status.details[0].Unpack(info)
    return caught.value.code(), info.reason, caught.value.details() or ""


async def test_a_text_gives_chunks_an_end_and_a_summary() -> None:
    async with running_grpc(says("Héllo")) as front:
        answers = [answer async for answer in front.stub.Generate(text_request())]
    chunks = [answer.chunk for answer in answers if answer.HasField("chunk")]
    assert "".join(chunk.text for chunk in chunks) == "Héllo"
    tokens = [token.token_id for chunk in chunks for token in chunk.tokens]
    assert tokens == [*"Héllo".encode(), EOS]
    assert answers[-2].choice_end.finish_reason == generation_pb2.FINISH_REASON_STOP
    assert answers[-1].complete.usage.completion_tokens == 7
    assert answers[-1].complete.usage.cached_tokens == 3
    assert answers[-1].complete.timing.ttft_ms == 12.5
    assert {answer.request_id for answer in answers} == {"mine"}


async def test_chats_and_token_ids_are_inputs_too() -> None:
    async with running_grpc(says("ok")) as front:
        message = inference_pb2.ChatMessage(role="user", content="Hi")
        chat = inference_pb2.GenerateRequest(chat=inference_pb2.Chat(messages=[message]))
        ids = inference_pb2.GenerateRequest(tokens=inference_pb2.TokenIds(ids=[72, 105]))
        for request in (chat, ids):
            assert [answer async for answer in front.stub.Generate(request)]
        seen = [bytes(request.token_ids) for request in front.source.requests]
    assert seen == [b"user:Hi\n", b"Hi"]


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"json": '{"type": "null"}'}, "json_schema"),
        ({"regex": "a+"}, "regex"),
        ({"choice": inference_pb2.Choices(texts=["a", "b"])}, "choice"),
        ({"grammar": 'start: "a"'}, "grammar"),
        ({"json_object": True, "whitespace_pattern": " "}, "json_object"),
        ({"structural_tag": json.dumps(TAG)}, "structural_tag"),
    ],
)
async def test_what_an_answer_is_to_be_is_asked_as_over_http(
    asked: dict[str, Any], kind: str
) -> None:
    async with running_grpc(says("x")) as front:
        request = text_request()
        request.structured_outputs.CopyFrom(inference_pb2.StructuredOutputs(**asked))
        assert [answer async for answer in front.stub.Generate(request)]
        grammar = front.source.requests[0].sampling.grammar
        assert grammar is not None and grammar.kind == kind
        assert len(grammar.owner) == OWNER_BYTES


async def test_a_structural_tag_comes_to_the_worker_whole() -> None:
    async with running_grpc(says("x")) as front:
        request = text_request()
        request.structured_outputs.structural_tag = json.dumps(TAG)
        assert [answer async for answer in front.stub.Generate(request)]
        grammar = front.source.requests[0].sampling.grammar
    assert grammar is not None and accepts(grammar, "so <f=a>12</f>")
    assert not accepts(grammar, "<f=a>true</f>")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "exactly one"),
        ({"json": "{"}, "structured_outputs.json is no JSON"),
        ({"json": '{"not": {}}'}, "`not` at #"),
        ({"regex": "a", "disable_any_whitespace": True}, "not of regex"),
        ({"structural_tag": "<f="}, "structured_outputs.structural_tag is no JSON"),
        ({"structural_tag": '{"type":"structural_tag","format":{}}'}, "`format` is not supported"),
        ({"structural_tag": json.dumps({**TAG, "triggers": ["<g="]})}, "0 of the triggers"),
    ],
)
async def test_what_cannot_be_followed_is_refused_as_over_http(
    asked: dict[str, Any], words: str
) -> None:
    async with running_grpc(says("x")) as front:
        request = text_request()
        request.structured_outputs.CopyFrom(inference_pb2.StructuredOutputs(**asked))
        status, code, message = await failure_of(front.stub.Generate(request))
    assert (status, code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_request")
    assert words in message


async def test_a_prediction_goes_to_the_worker_as_over_http() -> None:
    async with running_grpc(says("x")) as front:
        request = text_request()
        request.prediction = "a b c"
        assert [answer async for answer in front.stub.Generate(request)]
        [asked] = front.source.requests
        assert bytes(asked.prediction) == b"a b c"


async def test_a_prediction_that_is_too_long_is_refused_before_it_is_read() -> None:
    async with running_grpc(says("x")) as front:
        request = text_request()
        request.prediction = "a" * 16_385
        status, code, message = await failure_of(front.stub.Generate(request))
    assert (status, code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_request")
    assert "prediction has 16385 characters" in message and front.source.requests == []


async def test_what_is_a_routers_word_to_workers_is_not_a_clients() -> None:
    async with running_grpc(says("x")) as front:
        request = text_request(grammar=generation_pb2.Grammar(text='start: "a"', kind="grammar"))
        _, _, message = await failure_of(front.stub.Generate(request))
    assert "structured_outputs" in message and front.source.requests == []


async def test_stop_strings_work_as_over_http() -> None:
    async with running_grpc(talks_forever("ab. ")) as front:
        call = front.stub.Generate(text_request(stop=[". a"]))
        answers = [answer async for answer in call]
        assert "".join(answer.chunk.text for answer in answers) == "ab"
        complete = answers[-1].complete
        assert (complete.usage.completion_tokens, complete.usage.cached_tokens) == (5, 3)
        assert (complete.timing.ttft_ms, complete.timing.queue_ms) == (12.5, 2.0)
        await until(lambda: front.source.num_closed == 1, "the generation is closed")


async def test_however_many_tokens_are_let_go_at_once_a_message_has_few_of_them() -> None:
    top = tuple((65 + rank, -0.5) for rank in range(20))

    async def holds_back(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        ids = [97] + [EOS] * 200
        yield ChoiceTokens(0, [GeneratedToken(each, -0.5, top) for each in ids])
        yield ChoiceTokens(0, [GeneratedToken(99, -0.5, top)], FinishReason.LENGTH)
        yield completed(request, 202)

    async with running_grpc(holds_back) as front:
        answers = [answer async for answer in front.stub.Generate(text_request(stop=["ab"]))]
    chunks = [answer.chunk for answer in answers if answer.HasField("chunk")]
    assert max(len(chunk.tokens) for chunk in chunks) * 21 <= MAX_DELTA_LOGPROBS
    assert sum(len(chunk.tokens) for chunk in chunks) == 202
    assert "".join(chunk.text for chunk in chunks) == "ac"
    assert [answer.HasField("choice_end") for answer in answers].count(True) == 1
    assert answers[-1].complete.usage.completion_tokens == 202


@pytest.mark.parametrize(
    ("request_message", "code", "reason"),
    [
        (inference_pb2.GenerateRequest(), "INVALID_ARGUMENT", "invalid_request"),
        (text_request(""), "INVALID_ARGUMENT", "invalid_request"),
        (text_request("x" * 600), "INVALID_ARGUMENT", "context_length_exceeded"),
        (text_request(temperature=float("nan")), "INVALID_ARGUMENT", "invalid_request"),
        (text_request(top_p=2.0), "INVALID_ARGUMENT", "invalid_request"),
        (text_request(n=17), "INVALID_ARGUMENT", "invalid_request"),
        (text_request(max_tokens=0), "INVALID_ARGUMENT", "invalid_request"),
        (text_request(stop=[""]), "INVALID_ARGUMENT", "invalid_request"),
        (text_request(logit_bias={1: float("inf")}), "INVALID_ARGUMENT", "invalid_request"),
        (inference_pb2.GenerateRequest(model="x", text="a"), "NOT_FOUND", "model_not_found"),
        (
            inference_pb2.GenerateRequest(tokens=inference_pb2.TokenIds(ids=[2**32 - 1])),
            "INVALID_ARGUMENT",
            "invalid_request",
        ),
        (
            inference_pb2.GenerateRequest(chat=inference_pb2.Chat()),
            "INVALID_ARGUMENT",
            "invalid_request",
        ),
    ],
    ids=range(12),
)
async def test_wrong_requests_get_a_status_and_a_stable_code(
    request_message: inference_pb2.GenerateRequest, code: str, reason: str
) -> None:
    async with running_grpc(says("ok")) as front:
        status, found, message = await failure_of(front.stub.Generate(request_message))
    assert (status.name, found) == (code, reason)
    assert message


@pytest.mark.parametrize("fault", [{}, {"n": 17}, {"stop": [""]}], ids=["none", "n", "stop"])
async def test_a_key_is_told_the_same_of_an_adapter_that_it_is_not_for_and_of_none(
    fault: dict[str, Any],
) -> None:
    """Also beside another fault, whichever is looked at first."""

    class KeyOfTheModel:
        def let_in(self, authorization: str | None) -> Tenant:
            return Tenant(name="a", models=(MODEL,))

    known = {"one": Adapter("one", "a" * 32)}
    model = replace(byte_model(), find_adapter=known.get, all_adapters=lambda: list(known.values()))
    told: list[tuple[str, str, str]] = []
    async with running_grpc(says("ok"), model=model, keyring=KeyOfTheModel()) as front:
        for name in ("one", "two"):
            asked = text_request(**fault)
            asked.model = name
            status, reason, message = await failure_of(front.stub.Generate(asked))
            told.append((status.name, reason, message.replace(f"`{name}`", "NAME")))
    hidden, absent = told
    assert hidden == absent
    assert hidden[1] == ("invalid_request" if "stop" in fault else "model_not_found")


async def test_errors_of_the_dispatcher_keep_their_code() -> None:
    for error, name in ((QueueFull("full"), "queue_full"), (KeyError("x"), "internal_error")):
        async with running_grpc(fails(error, after="Hel")) as front:
            _status, reason, _message = await failure_of(front.stub.Generate(text_request()))
            assert reason == name


async def wait_told_ms(front: GrpcFront) -> int:
    """By the refusal of a call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await front.stub.Generate(text_request()).read()
    told = error_details_pb2.RetryInfo()
    assert rpc_status.from_call(caught.value).details[1].Unpack(told)
    return told.retry_delay.ToMilliseconds()


async def test_calls_that_were_refused_together_are_told_to_come_back_apart() -> None:
    async with running_grpc(fails(QueueFull("full", retry_after_s=4.0))) as front:
        told_ms = {await wait_told_ms(front) for _ in range(20)}
    assert len(told_ms) > 10
    assert min(told_ms) >= 4000 and max(told_ms) <= 4000 * (1 + JITTER_SHARE) + 1


async def test_a_refusal_that_names_no_wait_tells_one_as_over_http() -> None:
    async with running_grpc(fails(QueueFull("full"))) as front:
        assert await wait_told_ms(front) >= 1000 * DEFAULT_RETRY_AFTER_S


async def test_a_clients_cancel_closes_the_generation() -> None:
    async with running_grpc(talks_forever()) as front:
        call = front.stub.Generate(text_request())
        await call.read()
        call.cancel()
        await until(lambda: front.source.num_closed == 1, "the generation is closed")
        await until(lambda: front.in_flight.num_admitted == 0, "nothing is in flight")


async def test_the_clients_deadline_bounds_the_request() -> None:
    async with running_grpc(hangs()) as front:
        call = front.stub.Generate(text_request(), timeout=2.0)
        status, _reason, _message = await failure_of(call)
        assert status is grpc.StatusCode.DEADLINE_EXCEEDED
        # The deadline travels as a duration, rounded up, and starts anew at the receiver.
        limits = front.source.requests[0].limits
        assert 0 < limits.asked_s <= 2.01
        await until(lambda: front.source.num_closed == 1, "the generation is closed")


async def test_equal_request_ids_stay_two_requests() -> None:
    async with running_grpc(says("ok")) as front:
        calls = [front.stub.Generate(text_request()) for _ in range(2)]
        await asyncio.gather(*(anext(aiter(call)) for call in calls))
        first, second = (request.request_id for request in front.source.requests)
        assert first != second


async def test_models_health_and_reflection_answer() -> None:
    async with running_grpc(says("ok")) as front:
        models = await front.stub.ListModels(inference_pb2.ListModelsRequest())
        assert [model.id for model in models.models] == [MODEL]
        health = health_pb2_grpc.HealthStub(front.channel)
        asked = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
        not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
        assert (await health.Check(asked)).status == not_serving
        await front.server.set_ready(True)
        assert (await health.Check(asked)).status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(front.channel)
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        replies = [reply async for reply in reflection.ServerReflectionInfo(iter([question]))]
        names = [service.name for service in replies[0].list_services_response.service]
        assert SERVICE_NAME in names


async def test_a_draining_router_refuses_calls() -> None:
    async with running_grpc(says("ok")) as front:
        front.in_flight.advance(ProcessState.DRAINING)
        status, reason, _ = await failure_of(front.stub.Generate(text_request()))
        assert (status, reason) == (grpc.StatusCode.UNAVAILABLE, "draining")


class AskedClock(ManualClock):
    """One that counts who asks."""

    num_asked = 0

    def __call__(self) -> float:
        self.num_asked += 1
        return super().__call__()


async def test_a_request_s_time_counts_from_its_call_and_not_from_its_turn() -> None:
    clock = AskedClock()
    async with running_grpc(says("ok"), clock=clock, max_receiving=1) as front:
        slow = front.channel.stream_stream("/splitserve.v1.Inference/Generate")()
        await slow.wait_for_connection()
        await until(lambda: clock.num_asked >= 2, "the slow upload has its place")
        num_asked = clock.num_asked
        waits = asyncio.ensure_future(answers_of(front.stub.Generate(text_request())))
        await until(lambda: clock.num_asked > num_asked, "another call has come")
        clock.advance(7.0)
        slow.cancel()
        await waits
        (request,) = front.source.requests
        assert clock.now_s - request.limits.arrived_s == 7.0


async def answers_of(call: Any) -> list[Any]:
    return [answer async for answer in call]


async def test_at_the_fleet_s_own_port_nothing_large_is_received_and_no_client_answered() -> None:
    apart = free_port()
    async with (
        running_grpc(says("ok"), fleet_port=apart) as front,
        open_channel(f"127.0.0.1:{apart}") as fleet,
    ):
        stub = inference_pb2_grpc.InferenceStub(fleet)
        for text in ("Hi", "x" * CONTROL_MESSAGE_BYTES):
            status, _, _ = await failure_of(stub.Generate(text_request(text)))
            assert status is grpc.StatusCode.UNIMPLEMENTED
        question = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
        missing = health_pb2_grpc.HealthStub(fleet).Check(question)
        assert await missing.code() is grpc.StatusCode.NOT_FOUND
        ask = health_pb2_grpc.HealthStub(fleet).Check
        large = health_pb2.HealthCheckRequest(service="x" * CONTROL_MESSAGE_BYTES)
        assert await ask(large).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert front.source.requests == []
        assert await answers_of(front.stub.Generate(text_request("x" * 400)))


async def test_who_has_a_port_apart_is_kept_out_by_no_connections_to_the_other() -> None:
    apart = free_port()
    async with running_grpc(says("ok"), fleet_port=apart, max_connections=2) as front:
        await front.channel.channel_ready()
        async with (
            open_channel(front.target) as second,
            open_channel(front.target) as late,
            open_channel(f"127.0.0.1:{apart}") as fleet,
        ):
            await second.channel_ready()
            ask = health_pb2.HealthCheckRequest()
            refused, taken = health_pb2_grpc.HealthStub(late), health_pb2_grpc.HealthStub(fleet)
            assert await refused.Check(ask).code() is not grpc.StatusCode.OK
            assert await taken.Check(ask).code() is grpc.StatusCode.OK
