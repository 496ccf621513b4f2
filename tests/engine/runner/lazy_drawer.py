"""A late device that also draws from the logits of any step."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.process.fake_runner import FakeRunner
from engine.sampling.device_draw import draws_of
from engine.sampling.logits import SamplingRow
from kernels.reference.sample import sample
from tests.engine.runner.lazy_runner import LazyFlight, LazyRunner


class LazyDrawer(LazyRunner):
    """A DrawingRunner: what it draws is not there before somebody waits, as what it launches."""

    def __init__(self, runner: FakeRunner, kv: torch.Tensor, vocab_size: int) -> None:
        super().__init__(kv, vocab_size)
        self._runner = runner
        self._logits: dict[int, torch.Tensor] = {}
        """Of drawn flights, by their numbers."""

    def draw(self, logits: torch.Tensor, rows: Sequence[SamplingRow]) -> LazyFlight:
        """See DrawingRunner."""
        assert all(row.is_simple for row in rows)
        self.log.append(f"draw {self.num_launched} of {len(rows)}")
        drawn = LazyFlight(
            self, self.num_launched, None, draws_of(rows, torch.device("cpu")), [], None
        )
        self._logits[self.num_launched] = logits.clone()
        self.num_launched += 1
        self._last = drawn
        self._pending.append(drawn)
        return drawn

    def _run(self, flight: LazyFlight) -> None:
        logits = self._logits.pop(flight.number, None)
        if logits is not None:
            flight.maxima, flight.ids = sample(logits, flight.draws)
            return
        try:
            super()._run(flight)
        except RuntimeError:
            self._pending.clear()  # what was launched behind it has no tokens to go on from
            raise
