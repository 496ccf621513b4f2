"""What an operator has said of a worker, beside what it says of itself.

    none --cordon--> no new requests --drain--> and its streams leave it
      ^----------------- uncordon ------------------------'

Nobody owns it: routers and the worker each keep the newest that they have heard of, and every beat
evens out what the two know. So all routers of a worker learn what one of them was told, without a
store, and one that comes back learns it from the worker, or the worker from it. Routers with a
store tell each other as well: a worker of another engine tells nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster.errors import InvalidRequest
from protos import membership_pb2

MAX_NUMBER = 2**53
"""Of orders about one worker: the largest whole number that JSON tells from the next. The one after
it is 1: who hears of a number that is made up is not held, or free, for ever."""
UNKNOWN_WORKER = "unknown_worker"
"""Why a router holds nobody: no worker of that name has joined."""


class HoldKind(StrEnum):
    """The later in this list, the more it keeps away."""

    NONE = ""
    CORDON = "cordon"
    """No new requests; what it has goes on."""
    DRAIN = "drain"
    """And its streams go on elsewhere."""


_STRENGTH = {kind: at for at, kind in enumerate(HoldKind)}


@dataclass(frozen=True, slots=True)
class WorkerHold:
    """`number`, 1 to MAX_NUMBER, grows with every order about the worker; 0: nobody has said
    anything."""

    kind: HoldKind = HoldKind.NONE
    number: int = 0

    @property
    def is_on(self) -> bool:
        """True where it gets no new requests."""
        return self.kind is not HoldKind.NONE

    def is_newer_than(self, other: WorkerHold) -> bool:
        """Of two orders that two routers gave in one moment, the stronger counts everywhere. As
        numbers go round, the newer of two is the one that is fewer steps ahead."""
        if self.number == other.number:
            return _STRENGTH[self.kind] > _STRENGTH[other.kind]
        if not (self.number and other.number):
            return self.number > other.number
        return (self.number - other.number) % MAX_NUMBER < MAX_NUMBER // 2

    def then(self, kind: HoldKind) -> WorkerHold:
        """The next order."""
        return WorkerHold(kind, self.number % MAX_NUMBER + 1)


NO_HOLD = WorkerHold()


def hold_kind_of(word: str) -> HoldKind:
    """As on the wire. Raises InvalidRequest."""
    if word not in set(HoldKind):
        allowed = ", ".join(repr(kind.value) for kind in HoldKind)
        raise InvalidRequest(f"a hold of kind {word[:32]!r}; allowed: {allowed}", param="kind")
    return HoldKind(word)


def hold_from_wire(message: membership_pb2.WorkerHold) -> WorkerHold:
    """An absent one is none. Raises InvalidRequest."""
    if message.number > MAX_NUMBER:
        raise InvalidRequest(f"hold number {message.number}; at most {MAX_NUMBER}", param="hold")
    return WorkerHold(hold_kind_of(message.kind), message.number)


def hold_to_wire(hold: WorkerHold) -> membership_pb2.WorkerHold:
    """The names are the same on both sides."""
    return membership_pb2.WorkerHold(kind=hold.kind, number=hold.number)
