"""Plans of a group on one host: a ring that all its ranks have mapped.

A message is one copy into the ring and one out of it; whoever waits spins for 50 microseconds, then
gives its core away, then sleeps until it is woken. The interpreter's lock is free meanwhile.
"""

from __future__ import annotations

import ctypes

from cluster.errors import InternalError, RankLost
from ranks.plans.native_calls import BROKEN, LOST, NOTHING, PlanViewRecord
from ranks.plans.plan import Part, PlanKind, RankPlan, RankSign, joined
from ranks.plans.segment import PlanSegment

DEADLINE_S = 10.0
"""For the slowest rank to take what the ring has no more room for."""


class SharedPlanWriter:
    """A PlanWriter."""

    def __init__(
        self, segment: PlanSegment, library: ctypes.CDLL, *, deadline_s: float = DEADLINE_S
    ) -> None:
        """Takes the segment over."""
        self._segment, self._library, self._deadline_s = segment, library, deadline_s
        self._deadline_ns = int(deadline_s * 1e9)
        self._view = _view_of(segment, rank=0)
        self._at = ctypes.addressof(self._view)
        self._most_bytes = longest_piece(segment)

    def send(self, kind: PlanKind, *parts: Part) -> None:
        """See PlanWriter."""
        body = joined(parts)
        if len(body) <= self._most_bytes:
            self._write(kind, False, body)
            return
        for start in range(0, len(body), self._most_bytes):
            piece = body[start : start + self._most_bytes]
            self._write(kind, start + len(piece) < len(body), piece)

    def sign_of(self, rank: int) -> RankSign:
        """See PlanWriter."""
        return self._segment.sign_of(rank)

    def give_up(self) -> None:
        """See PlanWriter."""
        if not self._segment.memory.is_closed:
            self._library.splitserve_end_plans(self._at)

    def close(self) -> None:
        """See PlanWriter."""
        self._segment.close()

    def _write(self, kind: PlanKind, goes_on: bool, body: bytes) -> None:
        if self._library.splitserve_write_plan(
            self._at, kind, goes_on, body, len(body), self._deadline_ns
        ):
            raise RankLost(
                f"the ranks of generation {self._segment.generation} take no plans any more: one "
                f"was lost, or stands still for {self._deadline_s:g} s; the group is started anew"
            )


class SharedPlanReader:
    """A PlanReader."""

    def __init__(self, segment: PlanSegment, rank: int, library: ctypes.CDLL) -> None:
        """Takes the segment over."""
        self._segment, self._library = segment, library
        self._view = _view_of(segment, rank)
        self._at = ctypes.addressof(self._view)
        self._body = bytearray(longest_piece(segment))
        self._body_at = ctypes.addressof(ctypes.c_char.from_buffer(self._body))
        self._kind, self._goes_on = ctypes.c_uint32(), ctypes.c_uint32()
        self._num_bytes = ctypes.c_int64()
        self._found = tuple(map(ctypes.byref, (self._kind, self._goes_on, self._num_bytes)))

    def next(
        self,
        timeout_s: float,
        *,
        waited_s: float = 0.0,
        called_s: float = 0.0,
        stepped_s: float = 0.0,
    ) -> RankPlan | None:
        """See PlanReader."""
        self._view.waited_ns, self._view.called_ns = int(waited_s * 1e9), int(called_s * 1e9)
        self._view.stepped_ns = int(stepped_s * 1e9)
        if not self._read(timeout_s):
            return None
        kind = PlanKind(self._kind.value)
        if not self._goes_on.value:
            return RankPlan(kind, memoryview(self._body)[: self._num_bytes.value])
        whole = bytearray(self._body[: self._num_bytes.value])
        while self._goes_on.value:
            if self._read(DEADLINE_S):
                whole += memoryview(self._body)[: self._num_bytes.value]
        return RankPlan(kind, memoryview(whole))

    def close(self) -> None:
        """See PlanReader."""
        self._segment.close()

    def _read(self, timeout_s: float) -> bool:
        outcome = self._library.splitserve_read_plan(
            self._at,
            int(timeout_s * 1e9),
            self._body_at,
            len(self._body),
            *self._found,
        )
        generation = self._segment.generation
        if outcome == LOST:
            raise RankLost(f"generation {generation} of this group is over: it has lost a rank")
        if outcome == BROKEN:
            raise InternalError(
                f"rank {self._view.rank} found no plan of generation {generation} where the next "
                "one should lie; the group is started anew"
            )
        return bool(outcome != NOTHING)


def longest_piece(segment: PlanSegment) -> int:
    """Bytes of a body that go out at once; longer ones go in pieces."""
    return segment.ring_bytes // 4 - 64


def _view_of(segment: PlanSegment, rank: int) -> PlanViewRecord:
    return PlanViewRecord(
        segment=segment.address(),
        rank=rank,
        num_ranks=segment.world_size,
        ring_bytes=segment.ring_bytes,
        generation=segment.generation,
    )
