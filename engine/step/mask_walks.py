"""Masks behind the guesses of a draft: the grammar walks over them, beside the forward pass."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import takewhile

import structlog

from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.masked_row import MaskedRow
from engine.step.batch.step_work import Span
from engine.step.requests.sequence import Sequence

_LOG = structlog.get_logger()


def walk_of(span: Span, ends: Container[int]) -> MaskedRow | None:
    """Over what of its draft is behind the masks that are known; None: nothing is. `ends`: tokens
    that end an answer."""
    constraint = span.sequence.constraint
    if constraint is None or constraint.outlook is None or constraint.failure is not None:
        return None
    num_forced = len(constraint.outlook.forced_at(span.sequence.num_generated))
    rest = list(takewhile(lambda token_id: token_id not in ends, span.draft[num_forced:]))
    return MaskedRow(constraint, [], draft=rest) if rest else None


def walk_has_failed(sequence: Sequence, row: MaskedRow) -> bool:
    """Whether its draft was not walked to its end. Where that is for whatever limit, it would not
    have been met without: the grammar begins anew from the sequence's tokens, and they alone
    count."""
    constraint = sequence.constraint
    if row.job is None or not row.job.done() or constraint is None:
        return False
    if row.job.exception() is None and constraint.failure is None:
        return not row.is_whole
    _LOG.warning("a draft could not be walked in its grammar", request_id=sequence.request_id)
    sequence.constraint = Constraint.anew(constraint)
    return True


def late_walks(
    walks: Mapping[Sequence, MaskedRow], sequences: Iterable[Sequence]
) -> dict[Sequence, MaskedRow]:
    """Of drafts that no step waits for any more: until they end their sequences sit out, as a
    matcher is used by one job at a time."""
    late = {sequence: walks[sequence] for sequence in sequences if sequence in walks}
    for sequence, row in late.items():
        row.constraint.late_at = sequence.num_generated
    return {sequence: row for sequence, row in late.items() if not row.is_done}
