"""A device that is as late as it may be, over the model-free runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from engine.model.ragged_batch import RaggedBatch
from engine.process.fake_runner import FakeRunner
from engine.runner.model_runner import Replica
from engine.sampling.device_draw import draws_of
from engine.sampling.logits import SamplingRow
from kernels.reference.sample import Draws, sample
from tests.engine.step.engine_scenario import VOCAB_SIZE, small_replica


@dataclass(eq=False)
class LazyFlight:
    """A Flight that is computed when somebody has to have it."""

    runner: LazyRunner
    number: int
    batch: RaggedBatch | None
    """None: it computes nothing, and draws from logits that are there."""
    draws: Draws
    sources: list[int | None]
    before: LazyFlight | None
    maxima: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    ids: torch.Tensor = field(default_factory=lambda: torch.empty(0))

    def tokens(self) -> list[int | None]:
        """See Flight."""
        self.runner.log.append(f"read {self.number}")
        self.runner.catch_up(self)
        if self.number in self.runner.lost:
            raise RuntimeError("the device is gone")
        is_finite = self.maxima.isfinite().tolist()
        return [i if ok else None for i, ok in zip(self.ids.tolist(), is_finite, strict=True)]


class LazyRunner:
    """A LaunchingRunner whose device starts on nothing before the host waits for it.

    Bytes that somebody puts into the pool beside the device's order, as remote reads do, are
    overwritten by what was launched before: if their blocks were given out too early.
    """

    def __init__(self, kv: torch.Tensor, vocab_size: int) -> None:
        self._runner = FakeRunner(kv, vocab_size)
        self._pending: list[LazyFlight] = []
        self._last: LazyFlight | None = None
        self.log: list[str] = []
        """`launch 0 of 3`, `read 0`, ... and `forward`."""
        self.num_launched = 0
        self.refuses = False
        """Launches raise."""
        self.lost: set[int] = set()
        """Numbers of flights that raise when they are read."""
        self.poisoned_token: int | None = None
        """Logits after this token are not numbers."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner."""
        self.catch_up(None)
        self._runner.copy_blocks(pairs)

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        self.log.append("forward")
        self.catch_up(None)
        return self._forward(batch)

    def launch(
        self,
        batch: RaggedBatch,
        rows: Sequence[SamplingRow],
        sources: Sequence[int | None],
    ) -> LazyFlight:
        """See LaunchingRunner."""
        if self.refuses:
            raise RuntimeError("nothing can be launched")
        assert all(row.is_simple for row in rows)
        self.log.append(f"launch {self.num_launched} of {len(rows)}")
        copied = {name: getattr(batch, name).clone() for name in _TENSORS}
        draws = draws_of(rows, torch.device("cpu"))
        flight = LazyFlight(
            self, self.num_launched, replace(batch, **copied), draws, list(sources), self._last
        )
        self.num_launched += 1
        self._last = flight
        self._pending.append(flight)
        return flight

    def catch_up(self, wanted: LazyFlight | None) -> None:
        """Computes what was launched, up to `wanted`; None: all of it."""
        while self._pending and (wanted is None or wanted in self._pending):
            self._run(self._pending.pop(0))

    def _run(self, flight: LazyFlight) -> None:
        assert flight.batch is not None
        token_ids = flight.batch.token_ids
        for row, source in enumerate(flight.sources):
            if source is not None:
                assert flight.before is not None
                token_ids[row] = flight.before.ids[source]
        flight.maxima, flight.ids = sample(self._forward(flight.batch), flight.draws)
        flight.before = None

    def _forward(self, batch: RaggedBatch) -> torch.Tensor:
        logits = self._runner.forward(batch)
        logits[batch.token_ids[batch.logit_rows] == self.poisoned_token] = torch.nan
        return logits


_TENSORS = (
    "token_ids",
    "positions",
    "slots",
    "query_starts",
    "context_lens",
    "block_tables",
    "logit_rows",
)


def lazy_replica(
    num_blocks: int = 8, eos_token_ids: tuple[int, ...] = ()
) -> tuple[Replica, LazyRunner]:
    """As `small_replica`, on a lazy device."""
    replica = small_replica(num_blocks, eos_token_ids)
    runner = LazyRunner(replica.kv, VOCAB_SIZE)
    return replace(replica, runner=runner), runner
