"""Heads without weights: a state stands for the tokens that it has seen, and guesses are what the
target would say after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from cluster.kv_shape import KvShape
from engine.contract.head_in_blocks import HeadInBlocks
from engine.memory.head_blocks import HeadBlocks
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.head_output import HeadOutput
from engine.model.ragged_batch import RaggedBatch
from engine.process.fake_runner import FakeRunner, fake_logits, read_tokens, write_tokens
from engine.runner.model_runner import DraftHeads, LeavesStates, Replica, copy_blocks
from engine.sampling.logits import SamplingRow
from engine.step.drafters.heads import HeadsDrafter
from engine.step.engine import Engine
from tests.engine.runner.lazy_runner import LazyFlight, LazyRunner
from tests.engine.step.engine_scenario import (
    BLOCK_SIZE,
    VOCAB_SIZE,
    small_engine,
    small_replica,
)
from tests.engine.step.guessing import TickingClock
from tests.engine.step.model_guessing import nobody

Seen = tuple[int, ...]
"""Tokens of a sequence, from its beginning."""


class Ledger:
    """Which tokens a state stands for: a state is a number, and zero that of none."""

    def __init__(self) -> None:
        self._numbers: dict[Seen, int] = {(): 0}
        self._seen: list[Seen] = [()]

    def number(self, seen: Seen) -> int:
        """The same for the same tokens."""
        if seen not in self._numbers:
            self._numbers[seen] = len(self._seen)
            self._seen.append(seen)
        return self._numbers[seen]

    def seen(self, number: float) -> Seen:
        """The inverse."""
        return self._seen[int(number)]


class LeavingRunner(FakeRunner):
    """A target whose steps leave a state of each row. `whole`: its blocks, with what lies in them
    beside its own layers."""

    def __init__(
        self, kv: torch.Tensor, vocab_size: int, ledger: Ledger, whole: torch.Tensor | None = None
    ) -> None:
        super().__init__(kv, vocab_size)
        self._ledger = ledger
        self._whole = kv if whole is None else whole
        self.left = torch.empty(0, 1)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner."""
        copy_blocks(self._whole, pairs)

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        logits = super().forward(batch)
        starts, rows = batch.query_starts.tolist(), list[list[float]]()
        for row, place in enumerate(batch.positions.tolist()):
            sequence = next(i for i, end in enumerate(starts[1:]) if row < end)
            seen = read_tokens(self._kv, batch.block_tables[sequence], place + 1)
            rows.append([float(self._ledger.number(tuple(seen)))])
        self.left = torch.tensor(rows)
        return logits


class FakeHead:
    """A HeadsRunner over a part of the target's blocks, or a pool of its own, which it reads back:
    a pair in a wrong place, or of another sequence, makes it err. It has the state of each pair in
    the first plane, and the token in both."""

    every = 0
    """Of places in a text, which one it guesses wrongly; 0: none."""
    fails_at: frozenset[int] = frozenset()
    """Calls that raise after they have written."""

    def __init__(
        self, target: LeavingRunner, kv: torch.Tensor, ledger: Ledger, vocab_size: int = VOCAB_SIZE
    ) -> None:
        self.target, self.kv, self._ledger = target, kv, ledger
        self._vocab_size = vocab_size
        self.num_calls = 0
        self.num_strange = 0
        """Guesses that were asked for over pairs of other tokens."""

    def seen(self, number: float) -> Seen:
        """What a state stands for."""
        return self._ledger.seen(number)

    def follow(self, steps: LeavesStates) -> None:
        """See HeadsRunner: it follows one."""

    def states(self) -> torch.Tensor:
        """See HeadsRunner."""
        return self.target.left

    def fused(self, states: torch.Tensor) -> torch.Tensor:
        """See HeadsRunner: as they are."""
        return states

    def forward(self, batch: RaggedBatch, hidden: torch.Tensor) -> HeadOutput | None:
        """See HeadsRunner."""
        write_tokens(self.kv, batch.slots, batch.token_ids)
        size = self.kv.shape[4]
        self.kv[batch.slots // size, 0, 0, 0, batch.slots % size, 0] = hidden[:, 0]
        self.num_calls += 1
        if self.num_calls in self.fails_at:
            raise RuntimeError("the head is not well")
        assert len(hidden) == len(batch.token_ids)
        starts = batch.query_starts.tolist()
        logits, numbers = list[torch.Tensor](), list[list[float]]()
        for row in batch.logit_rows.tolist():
            sequence = next(i for i, end in enumerate(starts[1:]) if row < end)
            seen = (*self._ledger.seen(float(hidden[row])), int(batch.token_ids[row]))
            length = int(batch.positions[row]) + 1
            pairs = read_tokens(self.kv, batch.block_tables[sequence], length)
            self.num_strange += tuple(pairs) != seen[-length:]
            logits.append(self._logits(seen))
            numbers.append([float(self._ledger.number(seen))])
        if not logits:
            return None
        return HeadOutput(torch.stack(logits), torch.tensor(numbers))

    def _logits(self, seen: Sequence[int]) -> torch.Tensor:
        logits = fake_logits(seen, self._vocab_size)
        return logits.roll(1) if self.every and len(seen) % self.every == 0 else logits


class AheadLeaver(LazyRunner):
    """A LaunchingRunner whose steps leave states: they are there when a step is launched, until
    the next one is, and tokens when somebody waits."""

    def __init__(self, runner: LeavingRunner) -> None:
        super().__init__(runner._kv, runner._vocab_size)
        self._runner = runner

    def launch(
        self,
        batch: RaggedBatch,
        rows: Sequence[SamplingRow],
        sources: Sequence[int | None],
    ) -> LazyFlight:
        """See LaunchingRunner."""
        flight = super().launch(batch, rows, sources)
        self.catch_up(None)
        return flight


def with_head(
    target: Replica,
    *,
    every: int = 0,
    fails_at: frozenset[int] = frozenset(),
    runs_ahead: bool = False,
) -> Replica:
    """A replica whose steps leave states, and a head over them."""
    ledger = Ledger()
    leaving = LeavingRunner(target.kv, target.vocab_size, ledger)
    runner = AheadLeaver(leaving) if runs_ahead else leaving
    head = FakeHead(leaving, torch.zeros_like(target.kv), ledger, target.vocab_size)
    head.every, head.fails_at = every, fails_at
    return replace(target, runner=runner, heads=DraftHeads(name="head", runner=head, share=0.05))


def with_head_in_blocks(
    num_blocks: int,
    ledger: Ledger,
    *,
    eos_token_ids: tuple[int, ...] = (),
    every: int = 0,
    fails_at: frozenset[int] = frozenset(),
) -> Replica:
    """The same, but the head's part is in the target's blocks: engines of one ledger may give each
    other theirs."""
    target = small_replica(num_blocks, eos_token_ids)
    room = HeadInBlocks(num_layers=2, num_kv_heads=1, hidden_size=1, identity="fake")
    shape = KvShape(num_layers=1 + room.num_layers, num_planes=2, num_kv_heads=1, head_dim=2)
    layout = KvLayout(shape=shape, block_size=BLOCK_SIZE, dtype=torch.float32)
    pool = KvPool(layout, num_blocks, "cpu")
    blocks = HeadBlocks(pool, room)
    runner = LeavingRunner(pool.tensor[:, :1], VOCAB_SIZE, ledger, pool.tensor)
    head = FakeHead(runner, blocks.kv.tensor, ledger)
    head.every, head.fails_at = every, fails_at
    heads = DraftHeads(name="head", runner=head, share=0.05, blocks=blocks)
    return replace(target, runner=runner, kv=pool.tensor, heads=heads)


def states_read(head: FakeHead, block_table: Sequence[int], length: int) -> list[int]:
    """Numbers of the states of the first pairs that these blocks hold."""
    numbers = head.kv[list(block_table), 0, 0, 0, :, 0].flatten()[:length]
    return [int(number) for number in numbers.tolist()]


def head_engine(target: Replica, *, every: int = 0, **more: Any) -> Engine:
    """An engine whose head is wrong at each `every`-th place; by its clock drafts pay.

    `target`: may have its head already."""
    given = {name: more.pop(name) for name in ("fails_at", "runs_ahead") if name in more}
    if target.heads is None:
        target = with_head(target, every=every, **given)
    return small_engine(
        target,
        clock=more.pop("clock", None) or TickingClock(),
        make_guesser=nobody,
        **({"max_batch_tokens": 32, "max_num_seqs": 8} | more),
    )


def drafter_of(engine: Engine) -> HeadsDrafter:
    """Its head's."""
    assert engine._speculation is not None
    [drafter] = [one for one in engine._speculation._drafters if isinstance(one, HeadsDrafter)]
    return drafter


def head_of(engine: Engine) -> FakeHead:
    """Without weights."""
    head = drafter_of(engine)._heads.runner
    assert isinstance(head, FakeHead)
    return head


def num_misses(engine: Engine) -> float:
    """Guesses that were wrong."""
    rates = drafter_of(engine)._care.rates
    return rates._trials - rates._kept
