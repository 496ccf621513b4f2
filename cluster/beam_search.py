"""How a beam search is asked for: one frozen record, checked where it enters.

As transformers has it (`generate(num_beams=...)`): the `width` likeliest continuations of a prompt
go on together; one that ends is finished, with the score

    sum of its tokens' logprobs / number of its tokens ** length_penalty
"""

from __future__ import annotations

import enum

import msgspec

MIN_BEAMS = 2
MAX_BEAMS = 16
"""As many as choices."""
MAX_LENGTH_PENALTY = 10.0
MAX_BEAM_STOP_TOKENS = 8
"""Each end of a text widens the search by its width."""
MAX_CANDIDATES = 512
"""Of one row of logits."""


class EarlyStopping(enum.StrEnum):
    """When a search ends that has as many finished answers as it is wide."""

    AT_ONCE = "true"
    NO_BETTER_NOW = "false"
    """Once the best that goes on, were it to end now, is no better than the worst finished."""
    NEVER_BETTER = "never"
    """Once it can be no better at any length."""


class BeamSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Of one request."""

    width: int
    length_penalty: float = 1.0
    """Above 0 longer answers are preferred, below 0 shorter ones."""
    early_stopping: EarlyStopping = EarlyStopping.NO_BETTER_NOW

    def stored_tokens(self, num_prompt: int, num_known: int, block_size: int) -> int:
        """Of the blocks that all beams hold at most, each with `num_known` tokens of KV: they share
        the prompt's full ones. Of two that part within a block one keeps it, which is known only
        once the other has its copy: a block for each such pair is planned in vain."""
        shared = num_prompt // block_size
        own = -(-num_known // block_size) - shared
        return (shared + self.width * own + self.width // 2) * block_size

    def num_candidates(self, num_ends: int) -> int:
        """Likeliest continuations that are looked at in a step, where so many tokens end a text:
        enough that `width` of them go on, whatever ends."""
        return max(2, 1 + num_ends) * self.width
