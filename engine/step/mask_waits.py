"""How long a step waits for the masks of answers that follow a grammar, and for how long whoever
makes them, or compiles the grammars, may owe an answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.process.own_lateness import SeenTime
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.masked_row import MaskedRow
from engine.step.step_health import EngineBroken

STUCK_S = 30.0
"""What takes longer does not end: a grammar that was tried compiles in 0.2 s of a core, a dear mask
takes 0.05 s of one, and waits for others."""


@dataclass(frozen=True, slots=True)
class MaskWaits:
    """How long the engine waits for masks, in seconds: all rows of a step together."""

    plan_s: float = 0.0005
    """Before a plan: for tokens that are forced, which it may draft."""
    least_forced: float = 0.02
    """... where so large a part of the last masks had one, for each mask that is waited for: the
    more streams, the longer their masks take (sixteen 0.2 ms, which the forward pass hides unless
    they are waited for), and the less of a step a token is."""
    step_share: float = 0.25
    """In all of a step, that included, of what one takes as measured, such waits among it: so it is
    longer by a third at most. Rows whose masks are not there then wait a step."""
    step_s: float = 0.005
    """... where none was measured yet."""
    lone_s: float = 0.05
    """Where no row could go on meanwhile."""

    def most_s(self, step_s: float) -> float:
        """Of a step that takes so long; 0: nobody knows."""
        return self.step_share * step_s if step_s else self.step_s


class MaskPatience:
    """For how long the step under way waits still."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.left_s = 0.0
        """To be set before each step."""

    def wait(self, jobs: Iterable[Future[float]], most_s: float = math.inf) -> None:
        """For all of these together, out of the step's time, and for so long at most."""
        began_s, most_s = self._clock(), min(most_s, self.left_s)
        left_s = most_s
        for job in jobs:
            with suppress(TimeoutError, CancelledError):
                job.exception(left_s)
            left_s = max(0.0, most_s - (self._clock() - began_s))
        self.left_s = max(0.0, self.left_s - (self._clock() - began_s))


class ForcedShare:
    """Which part of an engine's last masks had one token alone."""

    SAMPLED_EACH = 4
    """Steps: to count the bits of a mask takes 2 to 10 us of the thread that has made it, and three
    times as long where the code for it is cold."""
    __slots__ = ("_num_asked", "value")
    _KEPT = 0.99

    def __init__(self) -> None:
        self._num_asked = 0
        self.value = 1.0
        """As nothing is known of a beginning: one is looked for."""

    def is_sampled(self) -> bool:
        """To be asked once in each step that looks for no forced tokens: whether one of its masks
        is to tell, for SAMPLED_EACH of them."""
        self._num_asked += 1
        return self._num_asked % self.SAMPLED_EACH == 0

    def note(self, *, is_forced: bool, num_masks: int = 1) -> None:
        """Of one more mask, or of one that tells for so many."""
        kept = self._KEPT**num_masks
        self.value = kept * self.value + (1.0 - kept) * is_forced

    def note_of(self, row: MaskedRow) -> None:
        """What was found of it, where somebody was to look."""
        if row.is_forced is not None:
            num_masks = self.SAMPLED_EACH if row.is_sample else 1
            self.note(is_forced=row.is_forced, num_masks=num_masks)


class MaskVigil:
    """Whether the threads of masks come back, by time in which the engine looks: one that is
    stopped, or starved, has not waited for them meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._time = SeenTime(clock)
        self._seen_s = 0.0
        self._begun_s: dict[Future[float], float] = {}
        """When a thread was first seen at each job that one is at."""

    def check(self, rows: Iterable[MaskedRow]) -> None:
        """Of all rows under way. Raises EngineBroken where a thread does not come back: nobody else
        is given masks there. Who stands in line for a thread waits for those that have one."""
        self._seen_s += self._time.since_last_look()
        begun_s, last = dict[Future[float], float](), None
        for row in rows:
            job = row.job
            if job is last or job is None:
                continue
            last = job
            if job.running():
                began_s = begun_s[job] = self._begun_s.get(job, self._seen_s)
                if self._seen_s - began_s >= STUCK_S:
                    grammar = row.constraint.grammar
                    name = "" if grammar is None else f" {grammar.digest.hex()[:16]}"
                    raise EngineBroken(
                        f"a mask of the grammar{name} was not made in {STUCK_S:.0f} s"
                    )
        self._begun_s = begun_s


def look_at_compiling(grammars: GrammarCompiler) -> bool:
    """Whether one is compiled, or waits for that. Raises EngineBroken where the one under way is
    compiled without end: all others wait behind it."""
    if grammars.look() >= STUCK_S:
        raise EngineBroken(f"a grammar was not compiled in {STUCK_S:.0f} s")
    return grammars.is_busy
