"""One HTTP request as a gateway tells of it, message by message.

head -> body, whole or in pieces -> a reply: picked or refused -> the answer's head, pieces, end
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from cluster.errors import Cancelled, InvalidRequest, NotReady, RequestTooLarge, SlowRequest
from protos import ext_proc_pb2 as wire
from router.front.body_account import HeldBody
from router.front.limits import DoorLimits
from router.picker.gateway_messages import GatewayReply, go_on, subset_of
from router.picker.http_head import HttpHead

_DUPLEX = wire.FULL_DUPLEX_STREAMED


class GatewayCall:
    """`context` is the gRPC call's. Raises Cancelled when the gateway ends it."""

    def __init__(self, context: Any, limits: DoorLimits) -> None:
        self._context = context
        self._limits = limits
        self._modes = wire.ProtocolConfiguration(request_body_mode=wire.BUFFERED)
        self._has_trailers = False
        self.is_picked = False
        """The request is on its way: from now on nothing but its answer reaches the client."""
        self.among: frozenset[str] | None = None
        """Addresses that the gateway would have the pick be of; None: any."""

    @property
    def in_pieces(self) -> bool:
        """The gateway waits for no answer to the head, and sends the body piece by piece."""
        return self._modes.request_body_mode == _DUPLEX

    @property
    def is_end(self) -> bool:
        """No trailers follow the body."""
        return not self._has_trailers

    async def head(self) -> HttpHead:
        """Raises InvalidRequest for a call that begins with something else, SlowRequest."""
        message = await self._read(self._limits.request_timeout_s)
        if message is None:
            raise Cancelled("the gateway has closed its call")
        if message.WhichOneof("request") != "request_headers":
            raise InvalidRequest("a gateway's call begins with the head of a request")
        if message.observability_mode:
            raise InvalidRequest("a picker cannot pick in observability_mode")
        if message.HasField("protocol_config"):
            self._modes.CopyFrom(message.protocol_config)
        self.among = subset_of(message)
        return HttpHead(message.request_headers)

    async def body(self, held: HeldBody) -> bytes:
        """All of it. Raises RequestTooLarge, SlowRequest, NotReady, and InvalidRequest where the
        gateway is set up so that no body comes, or nothing could be changed any more."""
        self._check_mode()
        if not self.in_pieces:
            await self.say(GatewayReply(request_headers=wire.HeadersResponse()))
        timeout_s = self._limits.request_timeout_s
        try:
            async with asyncio.timeout(timeout_s) as limit:
                with held.arriving(limit):
                    return await self._gathered(held)
        except TimeoutError:
            raise SlowRequest(
                f"the body did not arrive within {timeout_s:g} s; send it faster"
            ) from None

    @property
    def shows_pieces(self) -> bool:
        """An answer is shown as it comes; else in one piece, or its head alone."""
        return self._modes.response_body_mode in (wire.STREAMED, _DUPLEX)

    async def answer_part(self) -> wire.ProcessingRequest | None:
        """The next of the answer, to be passed on; None: there is no more."""
        return await self._read(None)

    async def pass_on(self, message: wire.ProcessingRequest) -> None:
        """To the client, as it is. With the last part the gateway may break the call off at once:
        whoever has something to do with it does so before."""
        await self.say(go_on(message, is_echoed=self._modes.response_body_mode == _DUPLEX))

    async def say(self, reply: GatewayReply) -> None:
        """To the gateway."""
        await self._context.write(reply)

    async def _gathered(self, held: HeldBody) -> bytes:
        """In any mode but full duplex it comes in one message."""
        body = bytearray()
        while (message := await self._read(None)) is not None:
            if message.WhichOneof("request") == "request_trailers":
                self._has_trailers = True
                return bytes(body)
            if message.WhichOneof("request") != "request_body":
                raise InvalidRequest("the gateway sent something else where a body was to come")
            body += message.request_body.body
            if len(body) > self._limits.max_body_bytes:
                limit = self._limits.max_body_bytes
                raise RequestTooLarge(f"the body has more than {limit} bytes; shorten the request")
            held.grow_to(len(body))
            if message.request_body.end_of_stream or not self.in_pieces:
                return bytes(body)
        raise Cancelled("the client left while sending")

    def _check_mode(self) -> None:
        mode = self._modes.request_body_mode
        if mode not in (wire.BUFFERED, _DUPLEX):
            name = wire.BodySendMode.Name(mode)
            raise NotReady(
                f"the gateway's request_body_mode is {name}; a picker has to see the body before "
                "the request goes on: BUFFERED or FULL_DUPLEX_STREAMED"
            )

    async def _read(self, timeout_s: float | None) -> wire.ProcessingRequest | None:
        """None: the gateway has nothing more to say. Raises SlowRequest."""
        try:
            async with asyncio.timeout(timeout_s):
                message = await self._context.read()
        except TimeoutError:
            raise SlowRequest("the gateway fell silent") from None
        return None if message is grpc.aio.EOF else message
