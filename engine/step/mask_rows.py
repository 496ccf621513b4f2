"""What is asked of the maker of masks for a sequence, and for how long it may owe an answer."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.deadline import Clock
from cluster.process.own_lateness import SeenTime
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.masked_row import MaskedRow
from engine.step.drafting.draft import MAX_DRAFT_TOKENS
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence
from engine.step.step_health import EngineBroken

MAX_AT_ONCE = MAX_DRAFT_TOKENS + 1
"""Tokens that one step may give an answer. A constraint that is to be told of more follows one that
went on elsewhere: that takes its time, and no step waits for it."""
STUCK_S = 30.0
"""What takes longer does not end: a grammar that was tried compiles in 0.2 s of a core, a dear mask
takes 0.05 s of one, and waits for others."""


def is_masked(request: Request) -> bool:
    """Tokens of it are chosen from these logits: not where a prefill worker has given them."""
    return request.grammar is not None and (request.is_open or request.first_tokens is None)


def row_of(request: Request, sequence: Sequence, *, is_drafted: bool) -> MaskedRow:
    """Of its next token. `is_drafted`: with tokens that are forced, as its answer may have any."""
    constraint = _constraint_of(request, sequence)
    new = sequence.token_ids[sequence.num_prompt + constraint.num_known :]
    constraint.is_watched |= len(new) > MAX_AT_ONCE
    is_drafted &= constraint.may_draft and sequence.life.state is SequenceState.DECODING
    if not is_drafted:
        return MaskedRow(constraint, new)
    most = request.params.max_tokens - sequence.num_generated - 1
    return MaskedRow(constraint, new, most_forced=min(MAX_DRAFT_TOKENS, most))


class MaskVigil:
    """Whether the threads of masks come back, by time in which the engine looks: one that is
    stopped, or starved, has not waited for them meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._time = SeenTime(clock)
        self._seen_s = 0.0

    def begun(self, rows: Iterable[MaskedRow]) -> None:
        """They were asked for at this moment."""
        now_s = self._look()
        for row in rows:
            row.begun_s = now_s

    def check(self, oldest: MaskedRow) -> None:
        """Of the row that was begun first of those under way. Raises EngineBroken where its thread
        does not come back: nobody else is given masks there."""
        waited_s = self._look() - oldest.begun_s
        if oldest.job is None or oldest.job.done() or waited_s < STUCK_S:
            return
        grammar = oldest.constraint.grammar
        name = "" if grammar is None else f" {grammar.digest.hex()[:16]}"
        raise EngineBroken(f"a mask of the grammar{name} was not made in {STUCK_S:.0f} s")

    def _look(self) -> float:
        self._seen_s += self._time.since_last_look()
        return self._seen_s


def look_at_compiling(grammars: GrammarCompiler) -> bool:
    """Whether one is compiled, or waits for that. Raises EngineBroken where the one under way is
    compiled without end: all others wait behind it."""
    if grammars.look() >= STUCK_S:
        raise EngineBroken(f"a grammar was not compiled in {STUCK_S:.0f} s")
    return grammars.is_busy


def _constraint_of(request: Request, sequence: Sequence) -> Constraint:
    if sequence.constraint is None:
        assert request.grammar is not None, "only rows with a grammar are masked"
        sequence.constraint = Constraint.of(request.grammar)
    return sequence.constraint
