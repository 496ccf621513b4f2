"""What the ranks of a group compute with their collectives left out, in one process."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from cluster.sharding import Rank
from engine.contract.spec import EngineSpec
from engine.model.load_phases import PhaseTimer, silent
from engine.model.ragged_batch import RaggedBatch
from engine.runner.model_runner import DecoderRunner
from engine.runner.portion import Portion
from engine.runner.replica import load_part
from kernels.tape.collective import NativeCalls
from ranks.collectives.native_calls import VALUE_TYPES, address_of
from ranks.launch import CONDUCTOR

NUM_RANKS = 2


class NobodyElse:
    """A NativeCollective that leaves out what the other ranks would do."""

    world_size = NUM_RANKS

    def __init__(self, rank: int) -> None:
        self.rank = rank

    @property
    def native(self) -> NativeCalls:
        """Nothing: the C library's abs(0)."""
        no = address_of(ctypes.CDLL(None).abs)
        calls = {"add": no, "sum_tray": no, "gather_tray": no, "gather": no}
        return NativeCalls(**calls, context=0, types=VALUE_TYPES)

    def run_natively(self, program: Callable[[], int]) -> None:
        """As a group would."""
        program()

    def all_reduce(self, rows: torch.Tensor) -> None:
        """Nothing."""

    def all_gather(self, rows: torch.Tensor) -> torch.Tensor:
        """As wide as it would be."""
        return rows.repeat(1, NUM_RANKS)

    def wait_until_landed(self) -> None:
        """It has."""

    def gather(self, rows: torch.Tensor, root: int) -> torch.Tensor:
        """The own columns, where they are."""
        return rows


def own_part(spec: EngineSpec, index: int) -> DecoderRunner:
    """What one rank of two computes, in this process."""
    portion = Portion(
        rank=Rank(index, NUM_RANKS), collective=NobodyElse(index), logits_at=CONDUCTOR
    )
    part = load_part(spec, PhaseTimer(silent), portion)
    return DecoderRunner(part.decoder, part.pool)


class SideBySide:
    """The ranks' own parts at once, each on a thread: as long as the slower one takes."""

    def __init__(self, parts: list[DecoderRunner], closers: contextlib.ExitStack) -> None:
        *self._others, self._last = parts  # SmolLM2's last rank has most heads: begun at once
        self._threads = closers.enter_context(ThreadPoolExecutor(len(self._others)))

    def forward(self, batch: RaggedBatch) -> None:
        """Of all ranks."""
        begun = [self._threads.submit(part.forward, batch) for part in self._others]
        self._last.forward(batch)
        for each in begun:
            each.result()
