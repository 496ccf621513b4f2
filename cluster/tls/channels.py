"""gRPC channels with certificates: whoever calls shows those that are there now.

A channel keeps what it was made with. So there is a new one after a change, and calls that run go
on at the one before it, which is gone with the last of them. New calls go there, too, until the new
one is connected: where an authority is replaced, who is called may not know the new one yet.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import grpc

from cluster.tls.watched import Certificates, WatchedCertificates

Options = Sequence[tuple[str, Any]]
_READY = grpc.ChannelConnectivity.READY


class SecureChannels:
    """Opens channels to processes whose certificates are for `name`."""

    def __init__(self, watched: WatchedCertificates, name: str) -> None:
        self._watched = watched
        self._options: Options = (("grpc.ssl_target_name_override", name),)

    def open(self, address: str, options: Options) -> grpc.aio.Channel:
        """To host:port; the caller closes it."""
        return SecureChannel(address, self._watched, (*options, *self._options))


class SecureChannel(grpc.aio.Channel):
    """One for its callers. From the event loop."""

    def __init__(self, address: str, watched: WatchedCertificates, options: Options) -> None:
        self._address = address
        self._watched = watched
        self._options = options
        self._shown = watched.current()
        self._channel = self._open()
        self._next: grpc.aio.Channel | None = None
        """With the newest certificates, until it is connected."""
        self._former: weakref.WeakSet[grpc.aio.Channel] = weakref.WeakSet()

    async def __aenter__(self) -> SecureChannel:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """See grpc.aio.Channel; so are all that follow."""
        following = () if self._next is None else (self._next,)
        for channel in (*self._former, self._channel, *following):
            await channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: D102
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(  # noqa: D102
        self, last_observed_state: grpc.ChannelConnectivity
    ) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:  # noqa: D102
        await self._channel.channel_ready()

    def unary_unary(self, *method: Any, **coders: Any) -> Any:  # noqa: D102
        return self._calling("unary_unary", method, coders)

    def unary_stream(self, *method: Any, **coders: Any) -> Any:  # noqa: D102
        return self._calling("unary_stream", method, coders)

    def stream_unary(self, *method: Any, **coders: Any) -> Any:  # noqa: D102
        return self._calling("stream_unary", method, coders)

    def stream_stream(self, *method: Any, **coders: Any) -> Any:  # noqa: D102
        return self._calling("stream_stream", method, coders)

    def _calling(self, kind: str, method: Any, coders: Any) -> Any:
        made: list[Any] = [None, None]

        def call(*request: Any, **settings: Any) -> Any:
            channel = self._newest()
            if made[0] is not channel:
                made[:] = channel, getattr(channel, kind)(*method, **coders)
            running = made[1](*request, **settings)
            running.add_done_callback(
                lambda _: channel
            )  # a channel that nobody holds ends its calls
            return running

        return call

    def _newest(self) -> grpc.aio.Channel:
        """One that is connected, the newest first; the newest where none is."""
        now = self._watched.current()
        if now is not self._shown:
            self._shown = now
            if self._next is not None:
                self._former.add(self._next)  # to be closed with the others
            self._next = self._open()
        if self._next is None:
            return self._channel
        is_connected = self._next.get_state(try_to_connect=True) is _READY
        if is_connected or self._channel.get_state() is not _READY:
            self._former.add(self._channel)
            self._channel, self._next = self._next, None
        return self._channel

    def _open(self) -> grpc.aio.Channel:
        credentials = _credentials(self._shown)
        return grpc.aio.secure_channel(self._address, credentials, options=self._options)


def _credentials(now: Certificates) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(now.authority, now.key, now.chain)
