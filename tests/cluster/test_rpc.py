"""Calls between processes carry typed errors, health and reflection."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cluster.errors import ConfigError, QueueFull
from cluster.rpc import MAX_MESSAGE_BYTES, RpcServer, abort, error_of, open_channel
from protos import inference_pb2, inference_pb2_grpc

SERVICE = "splitserve.v1.Inference"


class FullInference(inference_pb2_grpc.InferenceServicer):
    async def ListModels(self, request, context):
        await abort(context, QueueFull("7 requests wait, limit 7", retry_after_s=1.5))


@pytest.fixture
async def server():
    running = RpcServer("127.0.0.1", 0)
    running.add(inference_pb2_grpc.add_InferenceServicer_to_server, FullInference(), SERVICE)
    running.bound = await running.start()
    yield running
    await running.stop(0)


async def test_an_error_keeps_its_class_and_its_message_across_a_call(server):
    async with open_channel(f"127.0.0.1:{server.bound}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await inference_pb2_grpc.InferenceStub(channel).ListModels(
                inference_pb2.ListModelsRequest()
            )
    assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    error = error_of(failure.value)
    assert isinstance(error, QueueFull)
    assert error.message == "7 requests wait, limit 7"


@pytest.mark.parametrize(
    "text", ["long ", "\u2603", "\ud800"], ids=["ascii", "unicode", "surrogate"]
)
async def test_an_error_with_an_endless_message_keeps_its_class(text):
    class Chatty(inference_pb2_grpc.InferenceServicer):
        async def ListModels(self, request, context):
            await abort(context, QueueFull(text * 50_000))

    server = RpcServer("127.0.0.1", 0)
    server.add(inference_pb2_grpc.add_InferenceServicer_to_server, Chatty(), SERVICE)
    async with open_channel(f"127.0.0.1:{await server.start()}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await inference_pb2_grpc.InferenceStub(channel).ListModels(
                inference_pb2.ListModelsRequest()
            )
    await server.stop(0)
    assert isinstance(error_of(failure.value), QueueFull)


async def test_a_service_is_not_serving_until_it_is_ready(server):
    async with open_channel(f"127.0.0.1:{server.bound}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        ask = health_pb2.HealthCheckRequest(service=SERVICE)
        assert (await stub.Check(ask)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await server.set_ready(True)
        assert (await stub.Check(ask)).status == health_pb2.HealthCheckResponse.SERVING


async def test_a_service_that_is_always_ready_serves_while_the_others_do_not():
    server = RpcServer("127.0.0.1", 0)
    add = inference_pb2_grpc.add_InferenceServicer_to_server
    server.add(add, FullInference(), SERVICE, always_ready=True)
    async with open_channel(f"127.0.0.1:{await server.start()}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        ask = health_pb2.HealthCheckRequest(service=SERVICE)
        assert (await stub.Check(ask)).status == health_pb2.HealthCheckResponse.SERVING
        await server.set_ready(False)
        watch = stub.Watch(ask)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stopping = asyncio.create_task(server.stop(60))  # its watchers hear of it first
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        await stopping


async def test_reflection_lists_the_services(server):
    async with open_channel(f"127.0.0.1:{server.bound}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        calls = stub.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        names = [s.name async for reply in calls for s in reply.list_services_response.service]
    assert SERVICE in names
    assert "grpc.health.v1.Health" in names


async def test_a_taken_port_is_a_config_error(server):
    with pytest.raises(ConfigError, match="choose a free port"):
        await RpcServer("127.0.0.1", server.bound).start()


@pytest.mark.parametrize(
    ("num_bytes", "code"),
    [
        (8 << 20, grpc.StatusCode.OK),
        (MAX_MESSAGE_BYTES + 100, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
async def test_a_message_over_the_limit_of_our_own_ports_is_refused(num_bytes, code):
    class Seen(inference_pb2_grpc.InferenceServicer):
        async def ListModels(self, request, context):
            return inference_pb2.ListModelsResponse()

    server = RpcServer("127.0.0.1", 0)
    server.add(inference_pb2_grpc.add_InferenceServicer_to_server, Seen(), SERVICE)
    target = f"127.0.0.1:{await server.start()}"
    sends_all = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(target, options=sends_all) as channel:
        call = channel.unary_unary(f"/{SERVICE}/ListModels")(
            b"\x9a\x06" + varint(num_bytes) + bytes(num_bytes)
        )
        assert await call.code() is code
    await server.stop(0)


def varint(value):
    """Length of an unknown field, as protobuf has it."""
    low, rest = value & 127, value >> 7
    return bytes([low]) if not rest else bytes([low | 128]) + varint(rest)
