"""Which tokens may come next, of all rows of a step in one call, beside the forward pass.

    begin -> [forward] -> take: one mask a row; of a row that fails there is an error in its
                                constraint

A step whose masks take longer than they may is looked into: from the next one on each row is made
by itself and timed by the processor time of its thread, which a busy machine does not lengthen,
until steps are short again. Of a step that takes too long so the dearest rows end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from operator import itemgetter

import llguidance.numpy
import numpy as np
import numpy.typing as npt
import torch
from llguidance import LLExecutor

from cluster.deadline import Clock
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.meter import GrammarMeter
from kernels.reference.mask_logits import num_words

MASK_BUDGET_S = 0.05
"""Of all rows of a step. The slowest of 144 tokens of a nested schema took 0.4 ms (49,000 tokens),
one of the usual tokens 0.01."""
MAX_THREADS = 8
_MIN_ROWS = 16


@dataclass(frozen=True, slots=True)
class MaskedRow:
    """One sequence whose next token is chosen in this step."""

    constraint: Constraint
    token_ids: Sequence[int]
    """Prompt and answer; nobody changes them between `begin` and `take`."""
    num_prompt: int


class MaskMaker:
    """One engine's; `begin` and `take` in turn, from its thread."""

    def __init__(
        self,
        vocab_size: int,
        meter: GrammarMeter,
        *,
        budget_s: float = MASK_BUDGET_S,
        clock: Clock = time.perf_counter,
        row_clock: Clock = time.thread_time,
        num_threads: int = 1,
    ) -> None:
        """`num_threads`: that have nothing else to do while a step computes."""
        self._num_words = num_words(vocab_size)
        self._meter = meter
        self._budget_s = budget_s
        self._clock, self._row_clock = clock, row_clock
        self._bits = self._room_for(_MIN_ROWS)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="masks")
        num_threads = min(MAX_THREADS, num_threads)
        self._executor = LLExecutor(num_threads) if num_threads > 1 else None
        self._job: Future[None] | None = None
        self._num_rows = 0
        self._is_suspicious = False

    def begin(self, rows: Sequence[MaskedRow]) -> None:
        """At least one. What was begun before and never taken is lost."""
        self._wait()
        self._num_rows = len(rows)
        if len(rows) > len(self._bits):
            self._bits = self._room_for(2 * len(rows))
        self._job = self._pool.submit(self._fill, list(rows))

    def take(self) -> list[torch.Tensor]:
        """int32 [num_words] for each row, valid until the next `begin`."""
        self._wait()
        return list(torch.from_numpy(self._bits[: self._num_rows]))

    def _wait(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def _fill(self, rows: list[MaskedRow]) -> None:
        """In the thread of masks."""
        began_s = self._clock()
        for row in rows:
            row.constraint.catch_up(row.token_ids, row.num_prompt)
        going = [(row.constraint, i) for i, row in enumerate(rows) if row.constraint.error is None]
        if self._is_suspicious:
            self._fill_each(going)
        else:
            self._fill_all(going)
        for constraint, _ in going:
            constraint.check()
        took_s = self._clock() - began_s
        self._is_suspicious = took_s > self._budget_s
        self._meter.num_masks += len(rows)
        self._meter.mask_s += took_s

    def _fill_all(self, going: list[tuple[Constraint, int]]) -> None:
        """In one call where cores are free. Beside a team of kernels on all of them, more threads
        than this one make 16 streams 3 % slower: the team waits at its barriers for each."""
        if self._executor is not None and len(going) > 1:
            matchers = [(constraint.matcher, row) for constraint, row in going]
            llguidance.numpy.fill_next_token_bitmask_par(self._executor, matchers, self._bits)
            return
        start, num_bytes = self._bits.ctypes.data, self._bits.strides[0]
        for constraint, row in going:
            constraint.matcher.unsafe_compute_mask_ptr(start + row * num_bytes, num_bytes)

    def _fill_each(self, going: list[tuple[Constraint, int]]) -> None:
        taken = list[tuple[float, Constraint]]()
        for constraint, row in going:
            began_s = self._row_clock()
            llguidance.numpy.fill_next_token_bitmask(constraint.matcher, self._bits, row)
            taken.append((self._row_clock() - began_s, constraint))
        left_s = sum(took_s for took_s, _ in taken)
        for took_s, constraint in sorted(taken, key=itemgetter(0), reverse=True):
            if left_s <= self._budget_s:
                break
            left_s -= took_s
            constraint.fail(
                f"the next token's mask took {took_s * 1e3:.0f} ms to make, allowed for all of a "
                f"step: {self._budget_s * 1e3:.0f}; write a simpler grammar"
            )

    def _room_for(self, num_rows: int) -> npt.NDArray[np.int32]:
        return np.empty((num_rows, self._num_words), dtype=np.int32)
