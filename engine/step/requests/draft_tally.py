"""What one request's drafts came to."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.contract.draft_numbers import NO_DRAFTS, RequestDrafts


@dataclass(slots=True)
class DraftTally:
    """Tokens over all choices, since the request came to this engine."""

    tried: list[int] = field(default_factory=list)
    """By their place in a draft, as far as there was one."""
    kept: list[int] = field(default_factory=list)
    num_predicted_tried: int = 0
    """Of those tried, from the client's prediction."""
    num_predicted_kept: int = 0
    num_steps: int = 0
    """With drafts, whosever: each counts for each of its sequences."""
    num_tokens: int = 0
    """That these gave."""
    plain_ms: float = 0.0
    """That plain steps would have taken for these tokens."""
    took_ms: float = 0.0

    @property
    def told(self) -> RequestDrafts:
        """All of it so far."""
        if not self.num_steps:
            return NO_DRAFTS
        return RequestDrafts(
            tried=self.tried,
            kept=self.kept,
            num_steps=self.num_steps,
            num_tokens=self.num_tokens,
            gain=self.plain_ms / self.took_ms if self.took_ms else 0.0,
        )

    def begin(self, num_tokens: int, num_predicted: int) -> None:
        """A draft is verified, whose first `num_predicted` tokens the client has predicted."""
        if (num_new := num_tokens - len(self.tried)) > 0:
            self.tried += [0] * num_new
            self.kept += [0] * num_new
        for place in range(num_tokens):
            self.tried[place] += 1
        self.num_predicted_tried += num_predicted

    def keep(self, place: int, *, is_predicted: bool) -> None:
        """Its token there, from 0, was right."""
        self.kept[place] += 1
        self.num_predicted_kept += is_predicted

    def note_time(self, plain_ms: float, took_ms: float) -> None:
        """Of a step with drafts, once it is over: what the tokens of one of its sequences would
        have taken, and what it took."""
        self.plain_ms += plain_ms
        self.took_ms += took_ms
