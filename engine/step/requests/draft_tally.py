"""What one request's drafts came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DraftTally:
    """Tokens over all choices, since the request came to this engine."""

    num_tried: int = 0
    num_kept: int = 0
    num_predicted_tried: int = 0
    """Of those tried, from the client's prediction."""
    num_predicted_kept: int = 0

    def begin(self, num_tokens: int, num_predicted: int) -> None:
        """A draft is verified, whose first `num_predicted` tokens the client has predicted."""
        self.num_tried += num_tokens
        self.num_predicted_tried += num_predicted

    def keep(self, *, is_predicted: bool) -> None:
        """One of its tokens was right."""
        self.num_kept += 1
        self.num_predicted_kept += is_predicted
