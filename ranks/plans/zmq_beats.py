"""Signs of life of ranks that have no memory in common with their conductor.

rank        BeatSender: a thread, ten times a second      the process turns; its loop lives
conductor   BeatInbox.sign_of(rank)                       what has come by now
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable

import zmq

from ranks.channels import ChannelKeys, Channels, address_of, speak_to
from ranks.plans.own_life import OwnLife
from ranks.plans.plan import MAX_IDLE_S, RankSign

_BEAT = struct.Struct("<QQQQQQQ")
"""Generation, rank, num_plans; nanoseconds waited, in calls, in steps, and when it was alive."""
_MOST_AT_ONCE = 64
"""Beats that are read for one question: nobody keeps the watch busy."""
_MAX_WAITING = 16
NO_SIGN = RankSign(num_plans=0, beat_ns=0, waited_s=0.0)


class BeatSender:
    """A rank's. Its owner's loop sets `sign`; the thread ends with `close`."""

    def __init__(
        self,
        address: str,
        rank: int,
        generation: int,
        keys: ChannelKeys | None = None,
        *,
        life: OwnLife | None = None,
    ) -> None:
        self.sign = NO_SIGN
        """Replaced, never changed, so that the thread may read it at any time."""
        self.waits: Callable[[], bool] = lambda: False
        """Whether that loop waits for other ranks; replaced once it has joined them."""
        self.life = OwnLife() if life is None else life
        self._address, self._keys = address, keys
        self._rank, self._generation = rank, generation
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rank-beats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Idempotent."""
        self._is_closed.set()
        self._thread.join()

    def _run(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]]
        with (
            zmq.Context() as context,
            speak_to(
                context, zmq.PUSH, self._address, self._keys, max_waiting=_MAX_WAITING
            ) as socket,
        ):
            socket.setsockopt(zmq.LINGER, 0)
            while not self._is_closed.wait(MAX_IDLE_S):
                self._beat(socket)

    def _beat(self, socket: zmq.Socket[bytes]) -> None:
        sign = self.sign
        alive_ns = self.life.last_ns(sign.beat_ns, waits=self.waits())
        times_ns = (int(each * 1e9) for each in (sign.waited_s, sign.called_s, sign.stepped_s))
        words = (self._generation, self._rank, sign.num_plans, *times_ns, alive_ns)
        if socket.poll(0, zmq.POLLOUT):  # a conductor that reads none misses none
            socket.send(_BEAT.pack(*words))


class BeatInbox:
    """The conductor's; used by one thread, its watch."""

    def __init__(self, channels: Channels, *, world_size: int, generation: int) -> None:
        self._ranks, self._generation = range(1, world_size), generation
        self._socket = channels.listen(zmq.PULL, "beats", max_message_bytes=_BEAT.size)
        self.address = address_of(self._socket)
        self._signs: dict[int, RankSign] = {}

    def sign_of(self, rank: int) -> RankSign:
        """The last that has come."""
        for _ in range(_MOST_AT_ONCE):
            if not self._socket.poll(0):
                break
            self._take(self._socket.recv())
        return self._signs.get(rank, NO_SIGN)

    def close(self) -> None:
        """Nobody may be in `sign_of`. Idempotent."""
        self._socket.close(linger=0)

    def _take(self, packed: bytes) -> None:
        if len(packed) != _BEAT.size:
            return
        generation, rank, num_plans, *times_ns, alive_ns = _BEAT.unpack(packed)
        if generation == self._generation and rank in self._ranks:
            waited_s, called_s, stepped_s = (each / 1e9 for each in times_ns)
            self._signs[rank] = RankSign(
                num_plans=num_plans,
                beat_ns=alive_ns,
                waited_s=waited_s,
                called_s=called_s,
                stepped_s=stepped_s,
                heard_ns=time.monotonic_ns(),
            )
