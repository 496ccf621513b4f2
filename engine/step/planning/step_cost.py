"""What a step takes, as measured: milliseconds from rows, tokens and context.

    a step of decodes    base_ms + rows * row_ms
    each chunk adds      tokens * token_ms + tokens * context / 1024 * pair_ms
    drafts add           draft_base_ms + their rows * row weight * draft_row_ms

The second part of a chunk is attention: every token looks at all tokens before it. A row of a draft
weighs more where its context is long, for the same reason. A frozen value, for the scheduler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cluster.generation import PAIR_UNIT_TOKENS, pairs_of

_CONTEXT_WEIGHT = 0.5
"""What 1024 tokens of context add to the weight of a row of a draft. SmolLM2 on two cores, 16
sequences with 3 rows each: 0.25 ms a row at 60 tokens, 0.26 at 250, 0.37 at 1000. What prompts tell
is no better: those of like lengths cannot tell tokens from context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Milliseconds of a step; zeros where nothing was measured."""

    base_ms: float = 0.0
    row_ms: float = 0.0
    token_ms: float = 0.0
    pair_ms: float = 0.0
    """Per token and 1024 tokens of context."""
    tail: float = 1.0
    """A slow step of decodes, the 99th of a hundred, over what it should take."""
    draft_row_ms: float = 0.0
    """Per row of a draft, at no context; 0: nothing was measured yet."""
    draft_base_ms: float = 0.0
    """Of a step with drafts, whatever their rows."""

    @property
    def knows_chunks(self) -> bool:
        """True once a chunk of a prompt was measured."""
        return self.token_ms + self.pair_ms > 0

    def decodes_ms(self, num_rows: int) -> float:
        """A step that only decodes so many sequences."""
        return self.base_ms + num_rows * self.row_ms

    def draft_ms(self, context: int) -> float:
        """What one more row of a draft adds, of a sequence with that context."""
        return self.draft_row_ms * draft_weight(context)

    def chunk_ms(self, num_tokens: int, context: int) -> float:
        """What a chunk adds, of a prompt with `context` tokens already computed."""
        return num_tokens * self.token_ms + pairs_of(num_tokens, context) * self.pair_ms

    def tokens_within(self, limit_ms: float, context: int) -> int:
        """The longest chunk that adds at most `limit_ms`."""
        if limit_ms <= 0:
            return 0
        square = self.pair_ms / (2 * PAIR_UNIT_TOKENS)
        linear = self.token_ms + context * self.pair_ms / PAIR_UNIT_TOKENS
        root = math.sqrt(linear * linear + 4 * square * limit_ms)
        return int(2 * limit_ms / (linear + root))


def draft_weight(context: int) -> float:
    """How much a row of a draft is over one at no context."""
    return 1.0 + _CONTEXT_WEIGHT * context / PAIR_UNIT_TOKENS
