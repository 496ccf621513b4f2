"""What a step takes, as measured: milliseconds from rows, tokens and context.

    a step of decodes    base_ms + rows * row_ms
    each chunk adds      tokens * token_ms + tokens * context / 1024 * pair_ms
    drafts add           their rows * row weight * draft_row_ms

The second part of a chunk is attention: every token looks at all tokens before it. A row of a draft
weighs more where its context is long, for the same reason. A frozen value, for the scheduler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cluster.generation import PAIR_UNIT_TOKENS, pairs_of

_UNMEASURED_SHARE = 0.1
"""Of a step of one decode: what a row of a draft is taken to add before any was measured."""
_UNMEASURED_WEIGHT = 1.0
"""What 1024 tokens of context add to the weight of a row, before prompts have told."""


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
    """Per row of a draft, at no context."""

    @property
    def knows_chunks(self) -> bool:
        """True once a chunk of a prompt was measured."""
        return self.token_ms + self.pair_ms > 0

    def decodes_ms(self, num_rows: int) -> float:
        """A step that only decodes so many sequences."""
        return self.base_ms + num_rows * self.row_ms

    def draft_weight(self, context: int) -> float:
        """How much a row of a draft is over one at no context."""
        share = self.pair_ms / self.token_ms if self.token_ms else _UNMEASURED_WEIGHT
        return 1.0 + share * context / PAIR_UNIT_TOKENS

    def draft_ms(self, context: int) -> float:
        """What one more row of a draft adds, of a sequence with that context."""
        row_ms = self.draft_row_ms or _UNMEASURED_SHARE * self.decodes_ms(1)
        return row_ms * self.draft_weight(context)

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
