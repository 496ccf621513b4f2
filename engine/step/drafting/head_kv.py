"""What a head has read of one sequence: pairs of a token and the target's state before it.

    tokens of the sequence   | unseen ... | first .................. num_seen | next |
    the target's states                   | ... fused | pending ............. |
    pairs with KV                         | num_read .......... |

The pair of a token has its slot: so a block has the pairs of its own tokens, which do not depend on
what comes behind it. Its context begins where this engine has seen the first state, with that block
(states before it are zeros), or with the text, where the blocks say that all pairs are there.

Draft KV lies in the sequence's own blocks: see engine/memory/head_blocks.py, or in a pool beside
the target's, whose block ids are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.memory.lease import BlockLease
from engine.step.drafting.kept_rates import OwnKeptRates


class HeadKv:
    """Of a sequence, for as long as it has the blocks that it had."""

    __slots__ = (
        "_block_size",
        "_guessed_at",
        "_guesses",
        "era",
        "first",
        "fused",
        "is_whole",
        "last_block",
        "lease",
        "num_marked",
        "num_read",
        "num_seen",
        "pending",
        "rates",
    )

    def __init__(
        self,
        lease: BlockLease,
        fused: torch.Tensor,
        rates: OwnKeptRates,
        *,
        place: int,
        is_whole: bool,
        block_size: int,
        era: int,
    ) -> None:
        """`fused`: states before the token at `place`, whose own comes next, float32 [states,
        hidden]: of all tokens that no pair was made of. `is_whole`: all pairs from the text's
        beginning on are of the target's states. `era`: what was read in an older one is in doubt.
        """
        self.lease, self.fused, self.rates, self.era = lease, fused, rates, era
        self._block_size = block_size
        self.is_whole = is_whole
        self.num_seen = self.num_marked = place
        self.num_read = place + 1 - len(fused)
        self.first = 0 if is_whole else self.num_read
        """The place of the first pair in its context."""
        self.pending: list[torch.Tensor] = []
        """The states behind `fused`, as the target left them, float32 [rows, width] each."""
        self.last_block: int | None = None
        """That of the last pair read; None: none is."""
        if self.num_read > self.first:
            self.last_block = lease.block_ids[(self.num_read - 1) // block_size]
        self._guesses: list[int] = []
        self._guessed_at = 0

    @classmethod
    def cold(
        cls,
        lease: BlockLease,
        zero: torch.Tensor,
        rates: OwnKeptRates,
        *,
        place: int,
        block_size: int,
        era: int,
    ) -> HeadKv:
        """Nothing is known of what is before `place`. `zero`: float32 [1, hidden]."""
        return cls(
            lease,
            zero.expand(place % block_size + 1, -1),
            rates,
            place=place,
            is_whole=not place,
            block_size=block_size,
            era=era,
        )

    @property
    def num_pending(self) -> int:
        """Pairs whose states are there, but not their KV."""
        return self.num_seen + 1 - self.num_read

    def goes_on(self, lease: BlockLease | None, place: int, *, era: int) -> bool:
        """Whether a state of the token at `place` is the next, over the blocks that were read."""
        return self.num_seen == place and self.is_of(lease, era=era)

    def is_of(self, lease: BlockLease | None, *, era: int) -> bool:
        """False when blocks have changed since: what was read may be elsewhere."""
        if self.lease is not lease or self.era != era:
            return False
        if self.last_block is None or lease is None:
            return True
        index = (self.num_read - 1) // self._block_size
        return index < len(lease) and lease.block_ids[index] == self.last_block

    def saw(self, states: torch.Tensor) -> None:
        """Of the next tokens, float32 [rows, width]: kept, not copied."""
        self.pending.append(states)
        self.num_seen += len(states)

    def fuse(self, states: torch.Tensor) -> None:
        """All that is pending is now float32 [rows, hidden]."""
        self.fused = torch.cat((self.fused, states))
        self.pending.clear()

    def written(self, reach: int) -> list[int]:
        """Blocks of the pairs that have no KV yet, and of guesses up to place `reach`."""
        size = self._block_size
        return list(self.lease.block_ids[self.num_read // size : -(-reach // size)])

    def table(self, reach: int) -> list[int]:
        """Blocks of its context up to place `reach`."""
        size = self._block_size
        return list(self.lease.block_ids[self.first // size : -(-reach // size)])

    def take(self, num_pairs: int, token_ids: Sequence[int]) -> Pairs:
        """The next so many, at most `num_pending`, of which nothing is pending and whose tokens are
        known. They are about to be read."""
        states, start = self.fused[:num_pairs], self.num_read
        self.fused = self.fused[num_pairs:].clone()  # what was read need not stay
        return Pairs(states, list(token_ids[start : start + num_pairs]))

    def read(self, num_pairs: int) -> None:
        """So many more have KV: see `take`."""
        if num_pairs:
            self.num_read += num_pairs
            self.last_block = self.lease.block_ids[(self.num_read - 1) // self._block_size]

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


class Pairs:
    """What a head reads next of one sequence."""

    __slots__ = ("states", "token_ids")

    def __init__(self, states: torch.Tensor, token_ids: list[int]) -> None:
        self.states = states  # float32 [pairs, hidden]
        self.token_ids = token_ids
        """Each behind its state."""
