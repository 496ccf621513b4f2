"""A SUB socket with an ear for its connection: whoever has (re)connected may have missed much."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isinf
from typing import Self

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from cluster.deadline import Deadline
from cluster.kv_events.keys import ReaderKeys

_CONNECTED = zmq.EVENT_HANDSHAKE_SUCCEEDED


@dataclass(frozen=True, slots=True)
class Heard:
    """What there is after a wait; neither, where the wait was over."""

    connected: bool
    has_message: bool


class Subscription:
    """Of one publisher; made by `open`. From the event loop."""

    def __init__(self, sub: zmq.asyncio.Socket, monitor: zmq.asyncio.Socket) -> None:
        self._sub = sub
        self._monitor = monitor
        self._poller = zmq.asyncio.Poller()
        self._poller.register(sub, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    @classmethod
    @contextmanager
    def open(
        cls,
        context: zmq.asyncio.Context,
        address: str,
        topic: str,
        *,
        max_message_bytes: int,
        max_unread_messages: int,
        keys: ReaderKeys | None = None,
    ) -> Iterator[Self]:
        """Connects, now or when somebody listens there; closes at the end. The context is the
        caller's. Raises ZMQError for an address that is none."""
        sub: zmq.asyncio.Socket = context.socket(zmq.SUB)
        monitor: zmq.asyncio.Socket | None = None
        try:
            sub.setsockopt(zmq.MAXMSGSIZE, max_message_bytes)
            sub.setsockopt(zmq.RCVHWM, max_unread_messages)
            sub.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
            monitor = sub.get_monitor_socket(_CONNECTED)
            sub.setsockopt_string(zmq.SUBSCRIBE, topic)
            if keys is not None:
                keys.put_on(sub)
            sub.connect(address)
            yield cls(sub, monitor)
        finally:
            sub.disable_monitor()
            sub.close(linger=0)
            if monitor is not None:
                monitor.close(linger=0)

    async def wait(self, deadline: Deadline) -> Heard:
        """Until there is a message or a new connection, which is said once, or the deadline."""
        timeout_ms = None if isinf(deadline.at_s) else deadline.remaining_ms
        ready = dict(await self._poller.poll(timeout_ms))
        if self._monitor in ready:
            parse_monitor_message(await self._monitor.recv_multipart())
        return Heard(self._monitor in ready, self._sub in ready)

    async def receive(self) -> list[bytes]:
        """The frames of the next message."""
        return await self._sub.recv_multipart()
