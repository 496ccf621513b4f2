"""What a head has read of one sequence: from the first token on whose state this engine has seen.

    tokens of the sequence   | unseen ..... | first ...................... num_seen | next |
    the target's states                     | first ............. | pending         |
    pairs with KV                           | num_read .......... |

A pair is a token's state and the token after it. Pair i lies where the head counts token i: its
context begins with the first pair, in the block of that pair's state, which was the sequence's own
when it was written. So nothing is read that another sequence, or another worker, has made: what
comes with cached blocks or from a prefill worker has no states, and the head begins behind it.

Draft KV lies in the sequence's own blocks, in a pool beside the target's: block ids are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.memory.lease import BlockLease
from engine.step.drafting.kept_rates import OwnKeptRates


class HeadKv:
    """Of a sequence, for as long as it has the blocks that it had."""

    __slots__ = (
        "_guessed_at",
        "_guesses",
        "era",
        "first",
        "last_block",
        "lease",
        "num_read",
        "num_seen",
        "pending",
        "rates",
    )

    def __init__(self, lease: BlockLease, first: int, rates: OwnKeptRates, *, era: int) -> None:
        """`first`: the place of the first token whose state was seen. `era`: what was read in an
        older one is in doubt."""
        self.lease, self.era, self.rates = lease, era, rates
        self.first = self.num_seen = first
        self.num_read = 0
        self.pending: list[torch.Tensor] = []
        """States that no pair was made of yet, float32 [rows, width] each, in order."""
        self.last_block: int | None = None
        """That of the last pair read; None: none is."""
        self._guesses: list[int] = []
        self._guessed_at = 0

    @property
    def num_pending(self) -> int:
        """States that no pair was made of yet."""
        return self.num_seen - self.first - self.num_read

    def goes_on(self, lease: BlockLease | None, place: int, block_size: int, *, era: int) -> bool:
        """Whether a state of the token at `place` is the next, over the blocks that were read."""
        return self.num_seen == place and self.is_of(lease, block_size, era=era)

    def is_of(self, lease: BlockLease | None, block_size: int, *, era: int) -> bool:
        """False when blocks have changed since: what was read may be elsewhere."""
        if self.lease is not lease or self.era != era:
            return False
        if self.last_block is None or lease is None:
            return True
        index = self._block_of(self.num_read - 1, block_size)
        return index < len(lease) and lease.block_ids[index] == self.last_block

    def saw(self, states: torch.Tensor) -> None:
        """Of the next tokens, float32 [rows, width]: kept, not copied."""
        self.pending.append(states)
        self.num_seen += len(states)

    def table(self, num_pairs: int, block_size: int) -> list[int]:
        """Blocks of so many pairs, as the head counts."""
        first = self.first // block_size
        return list(self.lease.block_ids[first : first - (-num_pairs // block_size)])

    def take_pending(self, num_pairs: int, token_ids: Sequence[int]) -> Pairs:
        """The next so many, at most `num_pending`, whose tokens are known."""
        states = torch.cat(self.pending) if len(self.pending) > 1 else self.pending[0]
        rest = states[num_pairs:]
        self.pending = [rest.clone()] if len(rest) else []  # what was read need not stay
        start = self.first + self.num_read + 1
        return Pairs(states[:num_pairs], list(token_ids[start : start + num_pairs]))

    def read(self, num_pairs: int, block_size: int) -> None:
        """So many more have KV: see `take_pending`."""
        self.num_read += num_pairs
        self.last_block = self.lease.block_ids[self._block_of(self.num_read - 1, block_size)]

    def guessed(self, token_ids: list[int], place: int) -> None:
        """What may come at `place` of the sequence and behind it: no pairs, as they have no state
        of the target's."""
        self._guesses, self._guessed_at = token_ids, place

    def settle(self, token_ids: Sequence[int]) -> None:
        """By the tokens known now: which guesses were right."""
        guesses, self._guesses = self._guesses, []
        came = token_ids[self._guessed_at : self._guessed_at + len(guesses)]
        if not came:
            return
        num_right = next((i for i, t in enumerate(came) if t != guesses[i]), len(came))
        self.rates.note(min(num_right + 1, len(came)), num_right)

    def _block_of(self, pair: int, block_size: int) -> int:
        """Index into the sequence's blocks."""
        return self.first // block_size + pair // block_size


class Pairs:
    """What a head reads next of one sequence."""

    __slots__ = ("states", "token_ids")

    def __init__(self, states: torch.Tensor, token_ids: list[int]) -> None:
        self.states = states  # float32 [pairs, width]
        self.token_ids = token_ids
        """After each of them."""
