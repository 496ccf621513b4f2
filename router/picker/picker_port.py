"""The listener at which a gateway asks: Envoy's ExternalProcessor, health and reflection.

No join token is asked for, which no gateway has: each request shows its client's key, as at the
HTTP port, and `cluster.locks` lets the port open where that one may.
"""

from __future__ import annotations

from typing import Any

import grpc

from cluster.config import RouterOptions
from cluster.rpc import RpcServer
from protos import ext_proc_pb2 as wire
from router.api.reading.chat_reader import ChatReader
from router.api.reading.completion_reader import CompletionReader
from router.api.reading.plan import BodyReader
from router.dispatch.passing import Passing
from router.front.doors import DoorContext
from router.grpc_front.public_port import PublicPort
from router.picker.endpoint_picker import EndpointPicker
from router.picker.intake import Intake

SERVICE_NAME = "envoy.service.ext_proc.v3.ExternalProcessor"
"""Envoy's."""


def picker_of(
    options: RouterOptions,
    door: DoorContext,
    passing: Passing | None,
    limits: PublicPort,
    credentials: grpc.ServerCredentials | None,
) -> RpcServer | None:
    """None where no gateway asks. Raises ConfigError for a file that has no key of the servers."""
    if options.ext_proc_port is None or passing is None:
        return None
    picker = EndpointPicker(
        door,
        Intake(door, readers_of(door)),
        passing,
        vllm_key=_vllm_key(options),
        max_calls=limits.max_streams,
    )
    return picker_server(options.host, options.ext_proc_port, limits, picker, credentials)


def readers_of(door: DoorContext) -> dict[str, BodyReader]:
    """By path: what clients may ask of vLLM servers through a gateway."""
    model, lenient = door.model, door.ignores_unknown
    return {
        "/v1/chat/completions": ChatReader(model, ignores_unknown=lenient),
        "/v1/completions": CompletionReader(model, ignores_unknown=lenient),
    }


def _vllm_key(options: RouterOptions) -> str | None:
    from router.vllm.http_wire import vllm_key_in  # with httpx: 64 ms, of use only here

    return vllm_key_in(options.vllm_servers.vllm_key_file)


def picker_server(
    host: str,
    port: int,
    limits: PublicPort,
    picker: EndpointPicker,
    credentials: grpc.ServerCredentials | None,
) -> RpcServer:
    """To be started. A gateway has one connection or a few, with a call for each request that it
    has under way: as many as the port has streams. Liveness and readiness have the names that
    gateways ask for."""
    own = {"grpc.max_concurrent_streams": limits.max_streams}
    options = list({**dict(limits.options), **own}.items())
    server = RpcServer(host, port, limits=options, credentials=credentials)
    server.add(_add_process, picker, SERVICE_NAME)
    server.add(_nothing, None, "readiness")
    server.add(_nothing, None, "liveness", always_ready=True)
    return server


def _add_process(picker: EndpointPicker, server: grpc.aio.Server) -> None:
    """Under Envoy's name, which the messages have not."""
    method = grpc.stream_stream_rpc_method_handler(
        picker.process,
        request_deserializer=wire.ProcessingRequest.FromString,
        response_serializer=wire.ProcessingResponse.SerializeToString,
    )
    handler = grpc.method_handlers_generic_handler(SERVICE_NAME, {"Process": method})
    server.add_generic_rpc_handlers((handler,))


def _nothing(_servicer: Any, _server: Any) -> None:
    """A name without methods, of which health tells."""
