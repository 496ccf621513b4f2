"""A gateway as a picker sees it: messages of Envoy's protocol over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import msgspec

from protos import ext_proc_pb2 as wire
from router.picker.gateway_messages import (
    ENDPOINT,
    ENDPOINT_NAMESPACE,
    SUBSET,
    SUBSET_NAMESPACE,
)
from router.picker.picker_port import SERVICE_NAME

HEAD = {
    ":method": "POST",
    ":path": "/v1/completions",
    "content-type": "application/json; charset=utf-8",
}
BODY = {"prompt": "What is the capital of France? Say it.", "max_tokens": 3}


class Call:
    """One HTTP request, as a gateway in one of the two modes tells of it."""

    def __init__(self, stream: Any, mode: int) -> None:
        self._stream = stream
        self._mode = mode

    async def ask(
        self,
        body: bytes | dict[str, Any],
        *,
        among: list[str] | None = None,
        piece: int = 1 << 20,
        head: dict[str, str] | None = None,
        has_trailers: bool = False,
        ends: bool = True,
    ) -> wire.ProcessingResponse:
        """The head and the whole body; the reply that picks or refuses."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        await self._say(self._head(HEAD | (head or {}), among))
        if self._mode == wire.BUFFERED:
            reply = await self.hear()
            if reply.WhichOneof("response") != "request_headers":
                return reply
        for begin in range(0, max(1, len(data)), piece):
            part = wire.HttpBody(body=data[begin : begin + piece])
            part.end_of_stream = begin + piece >= len(data) and ends and not has_trailers
            await self._say(wire.ProcessingRequest(request_body=part))
        if has_trailers:
            trailers = wire.HttpTrailers(trailers=wire.HeaderMap())
            await self._say(wire.ProcessingRequest(request_trailers=trailers))
        return await self.hear()

    async def rest_of_body(self) -> bytes:
        """In full duplex the body follows the pick."""
        body = b""
        while True:
            part = (await self.hear()).request_body.response.body_mutation.streamed_response
            body += part.body
            if part.end_of_stream:
                return body

    async def answered(self, status: int, *pieces: bytes, ends: bool = True) -> None:
        """The server's answer passes by."""
        head = _headers({":status": str(status)}, is_all=not pieces and ends)
        await self._say(wire.ProcessingRequest(response_headers=head))
        assert (await self.hear()).WhichOneof("response") == "response_headers"
        for place, piece in enumerate(pieces, 1):
            is_end = ends and place == len(pieces)
            part = wire.HttpBody(body=piece, end_of_stream=is_end)
            await self._say(wire.ProcessingRequest(response_body=part))
            reply = await self.hear()
            if self._mode == wire.FULL_DUPLEX_STREAMED:
                came = reply.response_body.response.body_mutation.streamed_response
                assert (came.body, came.end_of_stream) == (piece, is_end)

    async def hear(self) -> wire.ProcessingResponse:
        reply = await self._stream.read()
        assert reply is not grpc.aio.EOF, "the picker ended the call"
        return reply

    async def end(self) -> None:
        """The gateway has no more to say; returns when the picker has ended, too."""
        await self._stream.done_writing()
        assert await self._stream.read() is grpc.aio.EOF

    def break_off(self) -> None:
        self._stream.cancel()

    async def _say(self, message: wire.ProcessingRequest) -> None:
        await self._stream.write(message)

    def _head(self, head: dict[str, str], among: list[str] | None) -> wire.ProcessingRequest:
        message = wire.ProcessingRequest(request_headers=_headers(head, is_all=False))
        message.protocol_config.request_body_mode = self._mode  # type: ignore[assignment]
        message.protocol_config.response_body_mode = self._mode  # type: ignore[assignment]
        if among is not None:
            hint = message.metadata_context.filter_metadata[SUBSET_NAMESPACE]
            hint.update({SUBSET: among})
        return message


@asynccontextmanager
async def gateway_call(address: str, mode: int = wire.FULL_DUPLEX_STREAMED) -> AsyncIterator[Call]:
    async with grpc.aio.insecure_channel(address) as channel:
        method = channel.stream_stream(
            f"/{SERVICE_NAME}/Process",
            request_serializer=wire.ProcessingRequest.SerializeToString,
            response_deserializer=wire.ProcessingResponse.FromString,
        )
        stream = method()
        try:
            yield Call(stream, mode)
        finally:
            stream.cancel()


def common_of(reply: wire.ProcessingResponse) -> wire.CommonResponse:
    """Of a pick, in either mode."""
    if reply.WhichOneof("response") == "request_body":
        return reply.request_body.response
    return reply.request_headers.response


def header_of(reply: wire.ProcessingResponse, name: str) -> str | None:
    """As the pick sets it."""
    found = [
        option.header.raw_value.decode()
        for option in common_of(reply).header_mutation.set_headers
        if option.header.key == name
    ]
    return found[0] if found else None


def endpoint_of(reply: wire.ProcessingResponse) -> str:
    """Told twice, and the same."""
    told = reply.dynamic_metadata.fields[ENDPOINT_NAMESPACE].struct_value.fields[ENDPOINT]
    assert told.string_value == header_of(reply, ENDPOINT), reply
    return told.string_value


def refusal_of(reply: wire.ProcessingResponse) -> tuple[int, dict[str, Any]]:
    """Status, and the error that the client is told."""
    assert reply.WhichOneof("response") == "immediate_response", reply
    refusal = reply.immediate_response
    return refusal.status.code, msgspec.json.decode(refusal.body)["error"]


def _headers(values: dict[str, str], *, is_all: bool) -> wire.HttpHeaders:
    listed = [wire.HeaderValue(key=name, raw_value=v.encode()) for name, v in values.items()]
    return wire.HttpHeaders(headers=wire.HeaderMap(headers=listed), end_of_stream=is_all)
