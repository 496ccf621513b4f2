"""What a conductor sends to its ranks, in order, to all of them alike.

    conductor   PlanWriter.send(PlanKind, parts)   returns when it is on its way
    rank        PlanReader.next(timeout_s)         one message after the other

One writer and one reader in each rank, each used by one thread.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

MAX_IDLE_S = 0.1
"""A rank that is told nothing says so often that it lives."""
Part = bytes | bytearray | memoryview


class PlanKind(enum.IntEnum):
    """What a message is."""

    STEP = 1
    """A step, to be computed with the others: engine/runner/ranks/step_message.py."""
    WORD = 2
    """For a rank's extension; opaque to everybody else."""
    STOP = 3
    """The last one: the rank ends, with exit code 0."""
    EXPERTS = 4
    """What experts are to be where: engine/model/experts/words.py; opaque here."""
    ADAPTERS = 5
    """What adapters are to be where: engine/model/adapters/words.py; opaque here."""


class RankPlan(NamedTuple):
    """One message, as a rank gets it."""

    kind: PlanKind
    body: memoryview
    """Writable, at an address that is a multiple of 8; the reader's own, which fills it anew with
    the next message. Bodies of one `obj` begin at one address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSign:
    """What a rank has shown of itself, as the conductor sees it now."""

    num_plans: int
    """Taken so far."""
    beat_ns: int
    """On a clock of its own choice; another value means that it turned meanwhile."""
    waited_s: float
    """For others, in collectives, in all."""
    called_s: float = 0.0
    """In collectives, in all, with what it waited."""
    stepped_s: float = 0.0
    """In steps, in all, with its collectives: without them it is what it has computed."""
    heard_ns: int = 0
    """When its process last said a word, on the conductor's clock; 0: none has come, or none is
    said."""


class PlanWriter(Protocol):
    """The conductor's end."""

    def send(self, kind: PlanKind, *parts: Part) -> None:
        """The parts as one body, of any size; they may change once this has returned.

        Raises RankLost where a rank was given up, or takes nothing within the deadline.
        """

    def sign_of(self, rank: int) -> RankSign:
        """Now. One thread asks, which need not be the one that sends."""

    def give_up(self) -> None:
        """The group is over: whoever waits, here or at a rank, waits no more. Any thread."""

    def close(self) -> None:
        """Idempotent. Nobody may be in a call."""


class PlanReader(Protocol):
    """A rank's end."""

    def next(
        self,
        timeout_s: float,
        *,
        waited_s: float = 0.0,
        called_s: float = 0.0,
        stepped_s: float = 0.0,
    ) -> RankPlan | None:
        """None when nothing has come by then. Beats at once, and every MAX_IDLE_S of waiting;
        `waited_s`, `called_s` and `stepped_s` are told with the beat, see RankSign.

        Raises RankLost once the group is over, WrongGeneration or InternalError for a message
        that is not this group's next.
        """

    def close(self) -> None:
        """Idempotent."""


def joined(parts: Sequence[Part]) -> bytes:
    """One body of several."""
    return parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)
