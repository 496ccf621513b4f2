"""What a request asks of a decode worker's room."""

from __future__ import annotations

import msgspec


class Need(msgspec.Struct, frozen=True, gc=False):
    """Of one request."""

    num_seqs: int = 1
    prompt_tokens: int = 0
    answer_tokens: int = 0
    """Over all choices, as long as they will probably get."""

    @property
    def num_tokens(self) -> int:
        """Of both."""
        return self.prompt_tokens + self.answer_tokens

    @property
    def num_steps(self) -> float:
        """That decode its answer: its choices go on together."""
        return self.answer_tokens / max(1, self.num_seqs)

    def exceeds(self, other: Need) -> bool:
        """True where there is no room for it if there is none for the other one."""
        return self.num_seqs >= other.num_seqs and self.num_tokens >= other.num_tokens


NOTHING = Need(num_seqs=0)
"""Of a request for which nothing is reserved."""
