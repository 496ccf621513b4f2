"""After a step with drafts: what was drawn is compared with what was guessed.

    rows of a sequence   last known token | draft 1 | draft 2 | draft 3
    drawn                      a          |    b    |    c    |    d
    kept                 a; b if a = draft 1; c if b = draft 2 as well; d if c = draft 3 too

Each row is drawn as the step that would compute it alone would draw it: by the same seed and place,
with the penalties and bans of the tokens before it. Tokens are given one by one, as if each had had
a step of its own, so what ends a text ends it in the midst of a draft as well. KV of guesses that
were wrong is written over by what comes; no block with such KV is named.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from collections.abc import Set as AbstractSet

import torch

from cluster.generation import GeneratedToken
from engine.sampling.logits import SamplingRow
from engine.step.batch.step_work import Span
from engine.step.meters.verified_drafts import VerifiedDraft, VerifiedRows
from engine.step.placement import Placement
from engine.step.requests.sequence import Sequence
from engine.step.requests.table import RequestTable
from engine.step.telling.draft_counts import DraftCounts
from engine.step.token_choice import TokenChoice

_Placed = tuple[int, Span]
"""With the first of its rows."""


class Verification:
    """Gives a step's tokens to its sequences."""

    def __init__(
        self, placement: Placement, table: RequestTable, token_choice: TokenChoice
    ) -> None:
        self._placement = placement
        self._table = table
        self._token_choice = token_choice
        self.counts = DraftCounts()
        self._last: VerifiedRows | None = None

    def take_last(self) -> VerifiedRows | None:
        """What the step before verified, once; None: it had no drafts, or has failed."""
        last, self._last = self._last, None
        return last

    def take(
        self, logits: torch.Tensor, spans: Ordered[Span], late: AbstractSet[Sequence] = frozenset()
    ) -> int:
        """`logits` is float32 [num_logits, vocab_size], in the order of the spans' `logit_rows`.
        `late`: get no token in this step, as their masks are not there.

        Returns how many tokens were given.
        """
        placed, num_searched = _placed(spans), 0
        if self._table.num_searches:
            placed, num_searched = self._advance_searches(logits, placed)
        rows = [
            [] if span.sequence in late else self._rows_of(span, first) for first, span in placed
        ]
        drawn = iter(self._token_choice.draw(logits, [row for group in rows for row in group]))
        self._last = last = VerifiedRows(len(spans))
        given = [
            self._give(span, [next(drawn) for _ in group], last)
            for (_, span), group in zip(placed, rows, strict=True)
        ]
        self.counts.note_step(given)
        last.num_tokens = sum(given) + num_searched
        return last.num_tokens

    def _advance_searches(
        self, logits: torch.Tensor, placed: list[_Placed]
    ) -> tuple[list[_Placed], int]:
        """Beams have one row each, beside the drafts of others. Returns who is left, and how many
        of their rows could be used."""
        own, others = self._table.searches_among([span.sequence for _, span in placed])
        beams = [placed[index] for index in own]
        for _, span in beams:
            self._placement.record(span.sequence, span.end)
        rows, sequences = [first for first, _ in beams], [span.sequence for _, span in beams]
        num_used = self._token_choice.advance_searches(logits[rows], sequences) if own else 0
        return [placed[index] for index in others], num_used

    def _rows_of(self, span: Span, first: int) -> list[SamplingRow]:
        sequence = span.sequence
        request = self._table.get(sequence.request_id)
        if request is None:
            return []  # it has failed with another of its choices
        masks = self._token_choice.masks(request, sequence, span.num_tokens)
        return [
            sequence.row(request.params, first + place, ahead=span.draft[:place], allowed=mask)
            for place, mask in enumerate(masks or ())
        ]

    def _give(
        self,
        span: Span,
        drawn: Ordered[GeneratedToken | None],
        told: VerifiedRows,
    ) -> int:
        """Returns how many of them the sequence got; `told` gets what became of its draft."""
        if span.draft:
            told.drafts.append(verified := VerifiedDraft.of(span))
        sequence, draft = span.sequence, span.draft
        request = self._table.get(sequence.request_id)
        if request is None:
            return 0  # it has failed with another of its choices
        if not drawn:
            self._placement.give_back_unused(sequence)
            return 0
        tally = request.drafted
        tally.num_steps += 1
        if draft:
            tally.begin(len(draft), span.num_predicted)
        num_given = num_kept = 0
        for place, token in enumerate(drawn):
            is_kept = place < len(draft) and token is not None and token.token_id == draft[place]
            if is_kept:
                num_kept += 1
                tally.keep(place, is_predicted=place < span.num_predicted)
            self._placement.record(sequence, sequence.num_computed + 1)
            tally.num_tokens += token is not None
            num_given += token is not None
            self._token_choice.give_one(sequence, token)
            if not is_kept or sequence.life.is_over:
                break
        if draft:
            verified.num_kept = num_kept
            self.counts.note(span, num_kept)
            if not sequence.life.is_over:
                self._placement.give_back_unused(sequence)
        told.given.append((tally, num_given))
        return num_given


def _placed(spans: Ordered[Span]) -> list[_Placed]:
    placed, first = list[_Placed](), 0
    for span in spans:
        placed.append((first, span))
        first += span.num_tokens
    return placed
