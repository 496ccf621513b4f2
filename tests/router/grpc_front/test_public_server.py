"""A port for strangers: how much it receives at once, how long it waits, whom it counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cluster.process.background import Background, nothing_needed
from cluster.process.loop_share import LoopShare
from protos import inference_pb2, inference_pb2_grpc
from router.dispatch.time_limits import DefaultTimes
from router.grpc_front.message_intake import everybody
from router.grpc_front.public_port import (
    CONTROL_MESSAGE_BYTES,
    DIALOGUE_MESSAGE_BYTES,
    PublicPort,
)
from router.grpc_front.public_server import CallTerms, PublicCalls, public_server

SERVICE = "splitserve.v1.Inference"
METHODS = ["/splitserve.v1.Inference/ListModels", "/splitserve.v1.Inference/Generate"]
OK = grpc.StatusCode.OK
ANY_PORT: dict[str, Any] = {"max_message_bytes": 1 << 20, "receive_timeout_s": 30.0}


class Inference(inference_pb2_grpc.InferenceServicer):
    async def ListModels(self, request: Any, context: Any) -> Any:
        return inference_pb2.ListModelsResponse()

    async def Generate(self, request: Any, context: Any) -> None:
        await context.write(inference_pb2.GenerateResponse(request_id=request.request_id))


@asynccontextmanager
async def target_of(service: Any = None, **limits: Any) -> AsyncIterator[str]:
    """Of a server whose Inference is `service`."""
    background = Background(nothing_needed)
    terms = CallTerms(
        clients=(SERVICE,),
        let_in=everybody,
        times=DefaultTimes(first_token_s=30.0, between_tokens_s=30.0),
        draw=Random(1).random,
        background=background,
        share=LoopShare(),
    )
    server = public_server("127.0.0.1", 0, PublicPort(**{**ANY_PORT, **limits}), terms)
    add = inference_pb2_grpc.add_InferenceServicer_to_server
    server.add(add, service or Inference(), SERVICE)
    try:
        yield f"127.0.0.1:{await server.start()}"
    finally:
        await server.stop(0)
        await background.close()


def own_channel(target: str) -> grpc.aio.Channel:
    """A connection of its own."""
    return grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])


async def test_both_kinds_of_methods_answer_as_before() -> None:
    async with target_of() as target, own_channel(target) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        assert await stub.ListModels(inference_pb2.ListModelsRequest()) is not None
        asked = inference_pb2.GenerateRequest(request_id="mine", text="x" * 500_000)
        assert [answer.request_id async for answer in stub.Generate(asked)] == ["mine"]


@pytest.mark.parametrize(
    ("num_bytes", "compression", "code"),
    [
        (1 << 19, None, grpc.StatusCode.OK),
        ((1 << 20) + 100, None, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (8 << 20, grpc.Compression.Gzip, grpc.StatusCode.UNIMPLEMENTED),
        (1 << 10, grpc.Compression.Gzip, grpc.StatusCode.UNIMPLEMENTED),
    ],
)
async def test_a_message_over_the_limit_is_refused_however_small_it_was_packed(
    num_bytes: int, compression: grpc.Compression | None, code: grpc.StatusCode
) -> None:
    async with target_of() as target, own_channel(target) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        asked = inference_pb2.GenerateRequest(text="x" * num_bytes)
        call = stub.Generate(asked, compression=compression)
        with suppress(grpc.aio.AioRpcError):
            assert [answer async for answer in call]
        assert await call.code() is code


@pytest.mark.parametrize("method", METHODS)
async def test_a_message_that_does_not_come_ends_its_call(method: str) -> None:
    async with target_of(receive_timeout_s=0.05) as target, own_channel(target) as channel:
        silent = channel.stream_stream(method)()
        assert await silent.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("method", METHODS)
async def test_a_peer_with_many_unfinished_messages_keeps_nobody_out(method: str) -> None:
    async with target_of(max_receiving=3) as target, own_channel(target) as greedy:
        silent = [greedy.stream_stream(method)() for _ in range(20)]
        for call in silent:
            await call.wait_for_connection()
        async with own_channel(target) as channel:
            stub = inference_pb2_grpc.InferenceStub(channel)
            for _ in range(20):
                await stub.ListModels(inference_pb2.ListModelsRequest())
        for call in silent:
            call.cancel()


async def test_a_probe_takes_no_place_of_a_client_and_ends_no_upload() -> None:
    async with target_of(max_receiving=1) as target, own_channel(target) as uploading:
        upload = uploading.stream_stream(METHODS[1])()
        await upload.wait_for_connection()
        async with own_channel(target) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for _ in range(20):
                await stub.Check(health_pb2.HealthCheckRequest())
        assert not upload.done()
        await upload.write(inference_pb2.GenerateRequest(request_id="mine").SerializeToString())
        answer = inference_pb2.GenerateResponse.FromString(await upload.read())
        assert answer.request_id == "mine"


async def test_messages_of_workers_and_operators_are_small() -> None:
    async with target_of() as target, own_channel(target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        fits = health_pb2.HealthCheckRequest(service="x" * (CONTROL_MESSAGE_BYTES - 100))
        too_large = health_pb2.HealthCheckRequest(service="x" * CONTROL_MESSAGE_BYTES)
        assert await stub.Check(fits).code() is grpc.StatusCode.NOT_FOUND
        refused = stub.Check(too_large)
        assert await refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(CONTROL_MESSAGE_BYTES) in await refused.details()


@pytest.mark.parametrize("method", ["/grpc.health.v1.Health/Check", METHODS[0]])
async def test_what_is_no_message_of_its_method_is_the_caller_s_fault(method: str) -> None:
    async with target_of() as target, own_channel(target) as channel:
        call = channel.unary_unary(method)(b"\xff\xff\xff")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_watchers_have_a_count_of_their_own_and_take_no_place_of_a_stream() -> None:
    async with target_of(max_watches=4, max_streams=1) as target, own_channel(target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        ask = health_pb2.HealthCheckRequest(service=SERVICE)
        watches = [health.Watch(ask) for _ in range(2)]
        for watch in watches:
            await watch.read()
        assert await health.Watch(ask).code() is grpc.StatusCode.UNAVAILABLE
        assert (await health.Check(ask)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        clients = inference_pb2_grpc.InferenceStub(channel)
        asked = inference_pb2.GenerateRequest(request_id="mine")
        assert [answer.request_id async for answer in clients.Generate(asked)] == ["mine"]
        watches[0].cancel()
        watches[1].cancel()


async def test_who_watches_on_one_connection_keeps_no_other_from_it() -> None:
    async with target_of(max_watches=4) as target, own_channel(target) as greedy:
        ask = health_pb2.HealthCheckRequest(service=SERVICE)
        watches = [health_pb2_grpc.HealthStub(greedy).Watch(ask) for _ in range(20)]
        await asyncio.gather(*(watch.read() for watch in watches), return_exceptions=True)
        async with own_channel(target) as channel:
            another = health_pb2_grpc.HealthStub(channel).Watch(ask)
            assert (await another.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            another.cancel()
        for watch in watches:
            watch.cancel()


async def talks(channel: grpc.aio.Channel, num: int) -> list[Any]:
    """So many dialogues that have had an answer."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    calls = [stub.ServerReflectionInfo() for _ in range(num)]
    for call in calls:
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        assert (await call.read()).HasField("list_services_response")
    return calls


async def test_dialogues_are_few_and_one_connection_has_not_all_of_them() -> None:
    async with (
        target_of(max_dialogues=4) as target,
        own_channel(target) as greedy,
        own_channel(target) as other,
    ):
        calls = await talks(greedy, 2)
        refused = reflection_pb2_grpc.ServerReflectionStub(greedy).ServerReflectionInfo()
        assert await refused.code() is grpc.StatusCode.UNAVAILABLE
        calls += await talks(other, 1)
        for call in calls:
            call.cancel()


async def test_a_question_of_a_dialogue_is_small_and_a_large_one_is_not_taken_apart() -> None:
    async with target_of() as target, own_channel(target) as channel:
        method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        (call,) = await talks(channel, 1)
        await call.write(asks_for("x" * (DIALOGUE_MESSAGE_BYTES - 100)))
        assert (await call.read()).HasField("error_response")
        await call.write(asks_for("x" * DIALOGUE_MESSAGE_BYTES))
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        garbled = channel.stream_stream(method)()
        await garbled.write(b"\xff" * (DIALOGUE_MESSAGE_BYTES + 1))
        assert await garbled.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def asks_for(name: str) -> Any:
    return reflection_pb2.ServerReflectionRequest(file_by_filename=name)


async def test_a_dialogue_without_a_question_ends() -> None:
    async with target_of(receive_timeout_s=0.05) as target, own_channel(target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        assert await stub.ServerReflectionInfo().code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_connection_over_the_limit_gets_no_answer() -> None:
    async with target_of(max_connections=2) as target:
        channels = [own_channel(target) for _ in range(3)]
        for channel in channels[:2]:
            await channel.channel_ready()
        stub = inference_pb2_grpc.InferenceStub(channels[2])
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stub.ListModels(inference_pb2.ListModelsRequest())
        assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
        for channel in channels:
            await channel.close()


async def test_a_connection_without_a_call_is_closed() -> None:
    async with target_of(idle_s=0.1) as target:
        host, port = target.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + ack(settings))
        async with asyncio.timeout(60.0):
            while await reader.read(4096):
                pass
        writer.close()


def ack(settings: bytes) -> bytes:
    """The frame that takes the other side's settings."""
    return settings[:4] + b"\x01" + settings[5:]


async def test_messages_are_read_in_the_share_of_the_door() -> None:
    share, background = LoopShare(), Background(nothing_needed)
    terms = CallTerms(
        clients=(SERVICE,),
        let_in=everybody,
        times=DefaultTimes(first_token_s=30.0, between_tokens_s=30.0),
        draw=Random(1).random,
        background=background,
        share=share,
    )
    calls = PublicCalls(PublicPort(**ANY_PORT), terms)
    shares = {id(reads._share) for reads in (calls._questions, calls._of_clients._reads)}
    assert shares == {id(share)} == {id(calls._of_control._reads._share)}
