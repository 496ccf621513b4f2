"""What a model that drafts has read of one sequence: the tokens whose draft KV is there and true.

    known tokens   | read ............ | lag |
    draft KV       | num_read ........ | of guesses, which the next tokens may bear out |

Draft KV lies in the sequence's own blocks, in a pool beside the target's: block ids are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.memory.lease import BlockLease
from engine.step.drafting.kept_rates import OwnKeptRates


class DraftKv:
    """Of a sequence, for as long as it has the blocks that it had."""

    __slots__ = ("_guesses", "era", "last_block", "lease", "num_read", "rates")

    def __init__(self, lease: BlockLease, num_read: int, rates: OwnKeptRates, *, era: int) -> None:
        """`era`: of the model's pool; see SharedDraftKv."""
        self.lease, self.era = lease, era
        self.num_read = num_read
        self.rates = rates
        self.last_block: int | None = None
        """That of the last token read, found there or read here; None: nothing is."""
        self._guesses: list[int] = []

    def is_of(self, lease: BlockLease | None, block_size: int, *, era: int) -> bool:
        """False when blocks have changed since: what was read may be elsewhere."""
        if self.lease is not lease or self.era != era:
            return False
        if self.last_block is None or lease is None:
            return True
        index = (self.num_read - 1) // block_size
        return index < len(lease) and lease.block_ids[index] == self.last_block

    def read(self, num_tokens: int, block_size: int) -> None:
        """The first `num_tokens` of the sequence are read."""
        self.num_read = num_tokens
        self.last_block = self.lease.block_ids[(num_tokens - 1) // block_size]

    def guessed(self, token_ids: list[int]) -> None:
        """What follows the tokens read; all but the last guess have KV behind them."""
        self._guesses = token_ids

    def settle(self, token_ids: Sequence[int], block_size: int) -> None:
        """By the tokens known now: which guesses were right, and have been read thereby."""
        guesses, self._guesses = self._guesses, []
        if not guesses:
            return
        came = token_ids[self.num_read : self.num_read + len(guesses)]
        num_right = next((i for i, t in enumerate(came) if t != guesses[i]), len(came))
        if came:
            self.rates.note(min(num_right + 1, len(came)), num_right)
        read = self.num_read + min(num_right, len(guesses) - 1)
        self.read(min(read, len(token_ids) - 1), block_size)
