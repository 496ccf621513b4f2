"""A gRPC channel whose calls show the fleet's join token."""

from __future__ import annotations

from functools import partial
from typing import Any

import grpc

TOKEN_KEY = "splitserve-join-token"
"""Of the calls' metadata."""


class TokenChannel(grpc.aio.Channel):
    """A channel whose calls carry a join token. An interceptor of gRPC's would cost each call a
    task."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self._shown = ((TOKEN_KEY, token),)

    async def __aenter__(self) -> TokenChannel:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._channel.__aexit__(*exception)

    async def close(self, grace: float | None = None) -> None:
        """See grpc.aio.Channel; so are all that follow."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: D102
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(  # noqa: D102
        self, last_observed_state: grpc.ChannelConnectivity
    ) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:  # noqa: D102
        await self._channel.channel_ready()

    def unary_unary(self, *method: Any, **coders: Any) -> Any:  # noqa: D102
        return self._showing(self._channel.unary_unary(*method, **coders))

    def unary_stream(self, *method: Any, **coders: Any) -> Any:  # noqa: D102
        return self._showing(self._channel.unary_stream(*method, **coders))

    def stream_unary(self, *method: Any, **coders: Any) -> Any:  # noqa: D102
        return self._showing(self._channel.stream_unary(*method, **coders))

    def stream_stream(self, *method: Any, **coders: Any) -> Any:  # noqa: D102
        return self._showing(self._channel.stream_stream(*method, **coders))

    def _showing(self, call: Any) -> Any:
        return partial(call, metadata=self._shown)
