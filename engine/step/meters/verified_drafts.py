"""What became of the drafts of one step: for what they cost, and what they were worth."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.contract.draft_numbers import DrafterKind
from engine.step.batch.step_work import Span
from engine.step.planning.step_cost import draft_weight
from engine.step.requests.draft_tally import DraftTally


@dataclass(slots=True)
class VerifiedDraft:
    """Of one sequence in one step."""

    drafter: DrafterKind
    num_tokens: int
    context: int
    """Of the sequence, before the step."""
    num_kept: int = 0

    @classmethod
    def of(cls, span: Span) -> VerifiedDraft:
        """Of a span with a draft, before its tokens are given."""
        assert span.drafter is not None, "a draft is somebody's"
        return cls(span.drafter, len(span.draft), span.sequence.num_computed)

    @property
    def weight(self) -> float:
        """Of its rows, in rows at no context."""
        return self.num_tokens * draft_weight(self.context)


@dataclass(slots=True)
class VerifiedRows:
    """Of one step."""

    num_decodes: int = 0
    """Sequences in it."""
    num_tokens: int = 0
    """That it gave to all of them."""
    drafts: list[VerifiedDraft] = field(default_factory=list)
    given: list[tuple[DraftTally, int]] = field(default_factory=list)
    """Of each sequence its request's tally, and how many of the tokens it got."""

    def note_time(self, plain_ms: float, took_ms: float) -> None:
        """It took so long, and a plain step of the same sequences takes `plain_ms`."""
        for tally, num_tokens in self.given:
            tally.note_time(num_tokens * plain_ms, took_ms)

    @property
    def weight(self) -> float:
        """Of all rows of drafts."""
        return sum(draft.weight for draft in self.drafts)
