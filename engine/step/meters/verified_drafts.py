"""What became of the drafts of one step: for what they cost, and what they were worth."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.contract.draft_numbers import DrafterKind
from engine.step.batch.step_work import Span
from engine.step.planning.step_cost import draft_weight


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

    @property
    def weight(self) -> float:
        """Of all rows of drafts."""
        return sum(draft.weight for draft in self.drafts)
