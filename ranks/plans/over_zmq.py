"""Plans of a group whose ranks have no memory in common: over ZMQ, one connection to each rank.

    rank        connects, says hello                          beats, ten times a second, from a
    conductor   waits until all have, sends to each in turn   thread: the process is not stopped

Every message carries generation and sequence number, so that one that was lost with a connection
is missed at once. Nobody can see from another host whether a rank works: one that waits in vain is
found by the deadline of its collective.
"""

from __future__ import annotations

import struct
import time

import zmq

from cluster.errors import InternalError, RankLost, WrongGeneration
from ranks.plans.plan import Part, PlanKind, RankPlan, RankSign
from ranks.plans.zmq_beats import BeatInbox, BeatSender

_HELLO = struct.Struct("<QQ")  # generation, rank
_HEAD = struct.Struct("<QQQ")  # generation, sequence, kind


class ZmqPlanWriter:
    """A PlanWriter."""

    def __init__(self, address: str, beats_address: str, *, world_size: int, generation: int):
        """Endpoints to bind; those of TCP without a port, which becomes a free one."""
        self._ranks = range(1, world_size)
        self._generation, self._sequence = generation, 0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set_hwm(0)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.bind(f"{address}:0" if address.startswith("tcp:") else address)
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.beats = BeatInbox(beats_address, generation)
        self._here: set[int] = set()
        self._is_over = False

    def await_ranks(self, timeout_s: float) -> bool:
        """Takes one hello; True once all have come."""
        if len(self._here) < len(self._ranks) and self._socket.poll(max(1, int(timeout_s * 1e3))):
            _, hello = self._socket.recv_multipart()
            if len(hello) == _HELLO.size:
                generation, rank = _HELLO.unpack(hello)
                if generation == self._generation and rank in self._ranks:
                    self._here.add(rank)
        return len(self._here) == len(self._ranks)

    def send(self, kind: PlanKind, *parts: Part) -> None:
        """See PlanWriter."""
        body = b"".join((_HEAD.pack(self._generation, self._sequence, kind), *parts))
        self._sequence += 1
        for rank in self._ranks:
            try:
                if self._is_over:
                    raise zmq.Again
                self._socket.send_multipart((_name_of(rank), body), zmq.NOBLOCK, copy=False)
            except zmq.ZMQError as error:
                raise RankLost(
                    f"rank {rank} of generation {self._generation} takes no plans any more "
                    f"({error}); the group is started anew",
                    ranks=(rank,),
                ) from error

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
        self._context.term()


class ZmqPlanReader:
    """A PlanReader."""

    def __init__(self, address: str, beats_address: str, rank: int, *, generation: int) -> None:
        """Beats from now on."""
        self._rank, self._generation, self._sequence = rank, generation, 0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(0)
        self._socket.setsockopt(zmq.IDENTITY, _name_of(rank))
        self._socket.connect(address)
        self._socket.send(_HELLO.pack(generation, rank))
        self._beats = BeatSender(beats_address, rank, generation)

    def next(self, timeout_s: float, *, waited_s: float = 0.0) -> RankPlan | None:
        """See PlanReader."""
        self._beats.sign = RankSign(
            num_plans=self._sequence, beat_ns=time.monotonic_ns(), waited_s=waited_s
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
