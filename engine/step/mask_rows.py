"""What is asked of the maker of masks for a sequence."""

from __future__ import annotations

from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.masked_row import MaskedRow
from engine.step.drafting.draft import MAX_DRAFT_TOKENS
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence

MAX_AT_ONCE = MAX_DRAFT_TOKENS + 1
"""Tokens that one step may give an answer. A constraint that is to be told of more follows one that
went on elsewhere: that takes its time, and no step waits for it."""
DECODING = SequenceState.DECODING
"""For every row of a step: an enumeration's look-up takes 0.12 us on Python 3.11, a global's 0.01.
"""


def is_masked(request: Request) -> bool:
    """Tokens of it are chosen from these logits: not where a prefill worker has given them."""
    return request.grammar is not None and (request.is_open or request.first_tokens is None)


def is_known(sequence: Sequence) -> bool:
    """Whether its next token's mask is there, or why there will be none."""
    constraint = sequence.constraint
    if constraint is None:
        return False
    outlook = constraint.outlook
    is_there = outlook is not None and outlook.reaches(sequence.num_generated)
    return is_there or constraint.failure is not None


def row_of(request: Request, sequence: Sequence, *, is_drafted: bool) -> MaskedRow:
    """Of its next token. `is_drafted`: with tokens that are forced, as its answer may have any."""
    constraint = sequence.constraint
    if constraint is None:
        assert request.grammar is not None, "only rows with a grammar are masked"
        constraint = sequence.constraint = Constraint.of(request.grammar)
    new = sequence.token_ids[sequence.num_prompt + constraint.num_known :]
    if len(new) > MAX_AT_ONCE:
        constraint.is_watched = True
    if not (is_drafted and constraint.may_draft and sequence.life.state is DECODING):
        return MaskedRow(constraint, new)
    most = request.params.max_tokens - sequence.num_generated - 1
    return MaskedRow(constraint, new, most_forced=min(MAX_DRAFT_TOKENS, most))
