"""What one step computes: which tokens of which sequences, and the blocks to copy before."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass, replace

import msgspec

from engine.contract.draft_numbers import DrafterKind
from engine.step.planning.plan import Chunk, HomeShare
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence


class Span(msgspec.Struct, frozen=True, gc=False):
    """The next `num_tokens` of a sequence: its share of a step. A Struct, as `RunningView` is."""

    sequence: Sequence
    num_tokens: int
    draft: Ordered[int] = ()
    """The last of these are not known yet: guesses, whose logits tell whether they are right."""
    num_predicted: int = 0
    """Guesses, the first ones, that come from what the client has predicted."""
    drafter: DrafterKind | None = None
    """Whose they are; None: there are none."""
    num_forced: int = 0
    """Guesses, the first ones, that are none: see Draft."""

    @property
    def end(self) -> int:
        """Tokens with KV once the step is done."""
        return self.sequence.num_computed + self.num_tokens

    @property
    def scored_rows(self) -> range:
        """Its rows whose logits score the next token of the prompt, where that was asked for."""
        sequence, start = self.sequence, self.sequence.num_computed
        if sequence.num_scored is None:
            return range(0)
        first = max(sequence.num_scored, start)
        return range(first - start, min(self.end, sequence.num_prompt - 1) - start)

    @property
    def logit_rows(self) -> list[int]:
        """Its rows whose logits are wanted: those that score, then the last known one if it
        completes, and those of a draft."""
        first = self.num_tokens - 1 - len(self.draft)
        return [*self.scored_rows, *(range(first, self.num_tokens) if self.completes else ())]

    @property
    def completes(self) -> bool:
        """True when the last known token is among them: logits are wanted."""
        return self.end - len(self.draft) == len(self.sequence.token_ids)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sequence whose next tokens are to be guessed."""

    request: Request
    sequence: Sequence
    num_tokens: int
    """As many as its prospect had chances, at most. It has blocks for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What a step computes: the spans, decodes first, and the blocks to copy before."""

    spans: list[Span]
    num_decodes: int
    """Of one token each."""
    copies: list[tuple[int, int]]
    num_drafted: int = 0
    """Decodes with drafts, after those: a step has no prompts then."""
    wanted: Ordered[Wanted] = ()
    """Decodes with drafts that are not guessed yet, and are no spans before (Speculation.guess)."""
    is_pooled: bool = False
    """All of it: hidden states are wanted, and no logits."""

    def guessed(self, spans: list[Span]) -> StepWork:
        """With what those that are wanted have come to, decodes first: some may have no draft."""
        with_drafts = [span for span in spans if span.draft]
        plain = [span for span in spans if not span.draft]  # nobody could guess, after all
        return replace(
            self,
            spans=plain + self.spans + with_drafts,
            num_decodes=self.num_decodes + len(plain),
            num_drafted=len(with_drafts),
            wanted=(),
        )

    @property
    def is_plain_decode(self) -> bool:
        """True when decodes are all that there is to do."""
        return not self.copies and 0 < self.num_decodes == len(self.spans)

    @property
    def has_chunks(self) -> bool:
        """True when part of a prompt is among it."""
        return len(self.spans) > self.num_decodes + self.num_drafted

    @property
    def sequences(self) -> list[Sequence]:
        """In the order of the spans."""
        return [span.sequence for span in self.spans]

    def slowest_share(self) -> HomeShare:
        """What the home with the most rows has to compute: the step takes as long."""
        by_home: dict[int, list[tuple[int, Span]]] = {}
        for row, span in enumerate(self.spans):
            by_home.setdefault(span.sequence.blocks.home, []).append((row, span))
        shares = [self._share(placed) for placed in by_home.values()]
        return max(shares, key=lambda share: share.num_tokens, default=HomeShare(0, ()))

    def _share(self, placed: list[tuple[int, Span]]) -> HomeShare:
        return HomeShare(
            sum(row < self.num_decodes for row, _ in placed),
            tuple(
                Chunk(span.sequence.key, span.num_tokens, span.sequence.num_computed)
                for row, span in placed
                if row >= self.num_decodes
            ),
        )

    def part_of(self, request_id: str) -> StepWork:
        """What of it is one request's, without drafts; its blocks have been copied."""
        own = [span.sequence.request_id == request_id for span in self.spans]
        spans = [span for span, is_own in zip(self.spans, own, strict=True) if is_own]
        return StepWork(
            spans=[Span(span.sequence, 1) if span.draft else span for span in spans],
            num_decodes=sum(own[: self.num_decodes + self.num_drafted]),
            copies=[],
            is_pooled=self.is_pooled,
        )

    def by_wanted(self) -> list[StepWork]:
        """What makes logits, then what makes hidden states: each is a forward of its own. Its
        blocks have been copied."""
        pooled = [span for span in self.spans if span.sequence.is_pooled]
        if not pooled:
            return [self]
        others = [span for span in self.spans if not span.sequence.is_pooled]
        work = StepWork(spans=pooled, num_decodes=0, copies=[], is_pooled=True)
        return [replace(self, spans=others, copies=[]), work] if others else [work]
