"""Which sequence has which blocks: reserving, growing, copying before a write, naming, preempting.

A sequence is admitted at one home (cluster/block_homes.py), and has all its blocks there until it
is over or preempted. Between the scheduler's counts and the pool's integers; knows nothing of
tensors.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

from cluster.block_homes import BlockHomes
from cluster.cache_change import CachedBlock
from engine.memory.block_pool import BlockPool, Hold
from engine.memory.lease import lease_blocks
from engine.memory.prefix_cache import PrefixCache
from engine.step.planning.plan import Offers, RunningView, WaitingView
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence


class Placement:
    """Owns the pool and the prefix cache of one replica."""

    def __init__(self, homes: BlockHomes, *, block_size: int, prefix_cache: bool) -> None:
        self.homes = homes
        self.block_size = block_size
        self.cache = PrefixCache(homes, enabled=prefix_cache)
        self.pool = BlockPool(homes, self.cache)

    def num_uncached(self, request: Request) -> int:
        """Tokens of the leader that the cache lacks now, where it has most of them."""
        leader = request.leader
        matched = max(len(self._match(request, leader, home)) for home in self._all_homes)
        return len(leader.token_ids) - matched * self.block_size

    def offers(self, request: Request, sequence: Sequence, *, due_ms: float) -> Offers:
        """What admitting the sequence would cost now at each home. Changes nothing."""
        return tuple(
            self._waiting_view(request, sequence, due_ms=due_ms, home=home)
            for home in self._all_homes
        )

    def running_view(
        self,
        request: Request,
        sequence: Sequence,
        *,
        is_tight: bool,
        due_ms: float = 0.0,
        num_ahead: int = 0,
        chances: Ordered[float] = (),
        guess_ms: float = 0.0,
        sits_out: bool = False,
    ) -> RunningView:
        """What the sequence needs for its next token. `is_tight`: preemption may be needed.

        `num_ahead`: tokens after `num_computed` that a step in flight computes; `chances` and
        `guess_ms`: of its draft; `sits_out`: it waits for something else than the step.
        """
        lease, index = sequence.blocks, (sequence.num_computed + num_ahead) // self.block_size
        block_ids = lease.block_ids  # a step asks for all that run: past the properties
        wanted = index == len(block_ids) or self.pool.num_holders(block_ids[index]) > 1
        freed = sum(not lease.is_shared(i) for i in range(len(lease))) if is_tight else 0
        is_decode = sequence.life.state is SequenceState.DECODING
        return RunningView(
            key=(sequence.arrival, sequence.choice),
            num_remaining=1 if is_decode else sequence.num_remaining,
            is_decode=is_decode,
            blocks_wanted=int(wanted),
            blocks_freed=freed,
            is_preemptible=not request.is_export,  # a reader may be at its blocks already
            num_computed=sequence.num_computed,
            due_ms=due_ms,
            is_scored=not (is_decode or sequence.is_pooled) and sequence.scores_prompt,
            home=lease.home,
            chances=chances,
            guess_ms=guess_ms,
            room_tokens=self.block_size - 1 - sequence.num_computed % self.block_size,
            block_tokens=self.block_size,
            sits_out=sits_out,
        )

    def admit(self, request: Request, sequence: Sequence, home: int) -> bool:
        """Reserves blocks for all tokens of a queued sequence; False: not enough there now."""
        hold = Hold.RECEIVING if request.is_remote else Hold.ACTIVE
        matched = self._match(request, sequence, home)
        num_new = self._num_blocks(sequence) - len(matched)
        lease = lease_blocks(
            self.pool, sequence.request_id, hold, home=home, shared=matched, num_new=num_new
        )
        if lease is None:
            return False
        sequence.lease = lease
        sequence.num_computed = len(matched) * self.block_size
        return True

    def pin_cached(self, sequence: Sequence) -> None:
        """Holds what is cached of a queued sequence for a reader, at the home that has most of it;
        the sequence is that much and no more from now on."""
        names = sequence.names(self.block_size)
        most, home = max(
            ((self.cache.match(names, len(names), home=home), home) for home in self._all_homes),
            key=lambda found: len(found[0]),
        )
        lease = lease_blocks(self.pool, sequence.request_id, Hold.EXPORTED, home=home, shared=most)
        assert lease is not None, "blocks that are there can be shared"
        sequence.lease = lease
        sequence.num_computed = len(most) * self.block_size
        del sequence.token_ids[sequence.num_computed :]

    def must_copy(self, sequence: Sequence, num_ahead: int) -> bool:
        """True when `make_room` would have a block copied."""
        lease, index = sequence.blocks, (sequence.num_computed + num_ahead) // self.block_size
        return index < len(lease) and lease.is_shared(index)

    def make_room(self, sequence: Sequence, num_ahead: int = 0) -> tuple[int, int] | None:
        """Makes the block of the next token exist and writable: (source, target) to copy, or None.

        The scheduler has planned the block that this may take; `num_ahead` as in `running_view`.
        """
        lease, index = sequence.blocks, (sequence.num_computed + num_ahead) // self.block_size
        if index < len(lease):
            return lease.own(index)
        has_grown = lease.extend()
        assert has_grown, "the scheduler plans a block for every sequence that grows"
        return None

    def make_draft_room(self, sequence: Sequence, num_tokens: int) -> None:
        """After `make_room`: blocks for so many tokens of a draft behind the next one. The
        scheduler has planned them."""
        lease = sequence.blocks
        for _ in range(self._reach(sequence.num_computed + 1 + num_tokens) - len(lease)):
            has_grown = lease.extend()
            assert has_grown, "the scheduler plans the blocks of drafts"

    def keep_draft_room(self, sequence: Sequence, num_tokens: int) -> None:
        """Of `make_draft_room`, what a shorter draft needs."""
        sequence.blocks.trim(self._reach(sequence.num_computed + 1 + num_tokens))

    def give_back_unused(self, sequence: Sequence) -> None:
        """After drafts: blocks that none of its computed tokens is in. What is left is what it
        would have without."""
        sequence.blocks.trim(self._reach(sequence.num_computed))

    def record(self, sequence: Sequence, num_computed: int) -> None:
        """The KV of the first `num_computed` tokens is in the pool: names the new full blocks."""
        names = sequence.names(self.block_size)
        first = sequence.num_computed // self.block_size
        for index in range(first, num_computed // self.block_size):
            start = index * self.block_size
            entry = CachedBlock(
                name=names[index],
                parent=names[index - 1] if index else None,
                token_ids=sequence.token_ids[start : start + self.block_size],
                adapter=sequence.adapter_digest,
            )
            self.cache.store(sequence.blocks.block_ids[index], entry, root=sequence.cache_root)
        sequence.num_computed = num_computed

    @property
    def _all_homes(self) -> range:
        return range(self.homes.num_homes)

    def _waiting_view(
        self, request: Request, sequence: Sequence, *, due_ms: float, home: int
    ) -> WaitingView:
        matched = self._match(request, sequence, home)
        num_blocks = self._num_blocks(sequence)
        in_use = sum(not self.pool.is_unused(block_id) for block_id in matched)
        return WaitingView(
            key=sequence.key,
            num_uncached=len(sequence.token_ids) - len(matched) * self.block_size,
            num_cached=len(matched) * self.block_size,
            due_ms=due_ms,
            blocks_wanted=num_blocks - in_use,
            blocks_fresh=num_blocks - len(matched),
            seats=request.num_seats,
            is_remote=request.is_remote,
            is_scored=_is_scored_here(request, sequence),
            home=home,
        )

    def _match(self, request: Request, sequence: Sequence, home: int) -> list[int]:
        """Cached blocks of the sequence's beginning at that home; one token stays to be computed
        here, and those whose logits are wanted: the cache has none."""
        num_tokens = len(sequence.token_ids) - (not request.is_remote)
        if sequence.num_scored is not None and sequence.scores_prompt and not request.is_remote:
            num_tokens = sequence.num_scored
        names = sequence.names(self.block_size)
        return self.cache.match(names, num_tokens // self.block_size, home=home)

    def _num_blocks(self, sequence: Sequence) -> int:
        return self._reach(len(sequence.token_ids))

    def _reach(self, num_tokens: int) -> int:
        """Blocks of so many tokens."""
        return -(-num_tokens // self.block_size)


def _is_scored_here(request: Request, sequence: Sequence) -> bool:
    """Whether its chunks take rows of logits: of a prompt that comes from elsewhere they do not."""
    return sequence.scores_prompt and not (sequence.is_pooled or request.is_remote)
