"""Plans of a group whose ranks have no memory in common: over ZMQ, one connection to each rank.

    rank        connects, says hello                          beats, ten times a second, from a
    conductor   waits until all have, sends to each in turn   thread: the loop lives (own_life.py)

Who may connect is for the channels to say (ranks/channels.py).

Every message carries generation and sequence number, so that one that was lost with a connection
is missed at once. Nobody can see from another host whether a rank works: its thread looks for
itself.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import zmq

from cluster.deadline import Deadline
from cluster.errors import InternalError, RankLost, WrongGeneration
from ranks.channels import ChannelKeys, Channels, address_of, speak_to
from ranks.plans.plan import Part, PlanKind, RankPlan, RankSign
from ranks.plans.zmq_beats import BeatInbox, BeatSender

_HELLO = struct.Struct("<QQ")  # generation, rank
_HEAD = struct.Struct("<QQQ")  # generation, sequence, kind
DEADLINE_S = 1.0
"""For a rank that is a thousand plans behind, so that its connection has no more room. Less than an
engine may be silent."""
_LOOK_S = 0.001


class ZmqPlanWriter:
    """A PlanWriter."""

    def __init__(
        self,
        channels: Channels,
        *,
        world_size: int,
        generation: int,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`deadline_s`: for the slowest rank to take what its connection has no more room for."""
        self._ranks = range(1, world_size)
        self._generation, self._sequence = generation, 0
        self._deadline_s = deadline_s
        self._socket = channels.listen(zmq.ROUTER, "plans", max_message_bytes=_HELLO.size)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.address = address_of(self._socket)
        self.beats = BeatInbox(channels, world_size=world_size, generation=generation)
        self._here: set[int] = set()
        self._is_over = False

    def await_ranks(self, timeout_s: float) -> bool:
        """Takes one hello; True once all have come."""
        if len(self._here) < len(self._ranks) and self._socket.poll(max(1, int(timeout_s * 1e3))):
            self._greet(self._socket.recv_multipart())
        return len(self._here) == len(self._ranks)

    def _greet(self, frames: list[bytes]) -> None:
        """What is no hello of a rank, by the name that its plans go to, does not count."""
        for rank in self._ranks:
            if frames == [_name_of(rank), _HELLO.pack(self._generation, rank)]:
                self._here.add(rank)

    def send(self, kind: PlanKind, *parts: Part) -> None:
        """See PlanWriter."""
        body = b"".join((_HEAD.pack(self._generation, self._sequence, kind), *parts))
        self._sequence += 1
        for rank in self._ranks:
            try:
                self._send_to(rank, body)
            except zmq.ZMQError as error:
                raise RankLost(
                    f"rank {rank} of generation {self._generation} takes no plans any more "
                    f"({error}); the group is started anew",
                    ranks=(rank,),
                ) from error

    def _send_to(self, rank: int, body: bytes) -> None:
        deadline = Deadline.after(self._deadline_s)
        while not self._is_over:
            try:
                self._socket.send_multipart((_name_of(rank), body), zmq.NOBLOCK, copy=False)
                return
            except zmq.Again:
                if deadline.has_passed:
                    raise
                time.sleep(_LOOK_S)
        raise zmq.Again

    def sign_of(self, rank: int) -> RankSign:
        """See PlanWriter."""
        return self.beats.sign_of(rank)

    def give_up(self) -> None:
        """See PlanWriter."""
        self._is_over = True

    def close(self) -> None:
        """See PlanWriter. The watch, which reads beats, has ended."""
        self.beats.close()
        self._socket.close(linger=200)


class ZmqPlanReader:
    """A PlanReader."""

    def __init__(
        self,
        address: str,
        beats_address: str,
        rank: int,
        *,
        generation: int,
        keys: ChannelKeys | None = None,
    ) -> None:
        """Beats from now on. The addresses and the keys are the launch's."""
        self._rank, self._generation, self._sequence = rank, generation, 0
        self._context = zmq.Context()
        name = _name_of(rank)
        self._socket = speak_to(self._context, zmq.DEALER, address, keys, name=name)
        self._socket.send(_HELLO.pack(generation, rank))
        self._beats = BeatSender(beats_address, rank, generation, keys)

    def next(
        self,
        timeout_s: float,
        *,
        waited_s: float = 0.0,
        called_s: float = 0.0,
        stepped_s: float = 0.0,
    ) -> RankPlan | None:
        """See PlanReader."""
        self._beats.sign = RankSign(
            num_plans=self._sequence,
            beat_ns=time.monotonic_ns(),
            waited_s=waited_s,
            called_s=called_s,
            stepped_s=stepped_s,
        )
        if not self._socket.poll(max(1, round(timeout_s * 1e3))):
            return None
        body = bytearray(self._socket.recv())
        if len(body) < _HEAD.size:
            raise InternalError(f"rank {self._rank} was sent {len(body)} bytes that are no plan")
        generation, sequence, kind = _HEAD.unpack_from(body)
        self._check(generation, sequence)
        self._sequence += 1
        return RankPlan(PlanKind(kind), memoryview(body)[_HEAD.size :])

    def lives_while(self, waits: Callable[[], bool]) -> None:
        """From now on a rank that `waits` for others, in the middle of a message, lives. Asked by
        the thread that beats."""
        self._beats.waits = waits

    def close(self) -> None:
        """See PlanReader."""
        self._beats.close()
        self._socket.close(linger=0)
        self._context.term()

    def _check(self, generation: int, sequence: int) -> None:
        if generation != self._generation:
            raise WrongGeneration(
                f"rank {self._rank} is of generation {self._generation}; it was sent a plan of "
                f"generation {generation}; the rank must be started anew"
            )
        if sequence != self._sequence:
            raise InternalError(
                f"rank {self._rank} was sent plan {sequence} where plan {self._sequence} was due; "
                "the group is started anew"
            )


def _name_of(rank: int) -> bytes:
    return f"rank-{rank}".encode()
