"""Masks that are there when a test says so, or when chance will have it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from engine.sampling.grammars.masked_row import MaskedRow
from engine.sampling.grammars.masks import MaskMaker
from engine.step.engine import Engine
from engine.step.mask_waits import MaskWaits
from kernels.token_mask import WORD_BITS

AT_ONCE = MaskWaits(plan_s=60.0, least_forced=0.0, step_share=1e6, step_s=60.0, lone_s=60.0)
"""Masks are waited for, as if machines had time."""
NEVER = MaskWaits(plan_s=0.0, step_share=0.0, step_s=0.0, lone_s=0.0)


class Inline:
    """An executor that does at once what it is given."""

    def submit(self, work: Callable[..., float], *given: Any) -> Future[float]:
        """See Executor."""
        job: Future[float] = Future()
        job.set_result(work(*given))
        return job


class LateMasks(MaskMaker):
    """Those of rows for which `is_late` holds are there after `arrive`, the others at once, made by
    whoever asks."""

    def __init__(self, *given: Any, is_late: Callable[[MaskedRow], bool], **more: Any) -> None:
        super().__init__(*given, **more)
        self.close()
        self._quick = self._watchers = Inline()  # type: ignore[assignment]
        self._is_late = is_late
        self._late: list[tuple[Future[float], float]] = []
        self.are_in_line = False
        """Those that are late wait for a thread; else they have one."""

    @property
    def num_late(self) -> int:
        """That have not arrived."""
        return len(self._late)

    def begin(self, rows: Sequence[MaskedRow]) -> None:
        """See MaskMaker. Rows of one job that are late have one, too."""
        super().begin(rows)
        jobs = dict[Future[float], Future[float]]()
        for row in rows:
            if row.job is not None and self._is_late(row):
                if row.job not in jobs:
                    late = jobs[row.job] = Future()
                    if not self.are_in_line:
                        late.set_running_or_notify_cancel()
                    self._late.append((late, row.job.result()))
                row.job = jobs[row.job]

    def arrive(self, num: int | None = None) -> None:
        """So many that are late, the first first; None: all."""
        arriving, self._late = self._late[:num], self._late[len(self._late[:num]) :]
        for job, took_s in arriving:
            job.set_result(took_s)


def late_masks(engine: Engine, is_late: Callable[[MaskedRow], bool], **more: Any) -> LateMasks:
    """From now on the engine's, which waits for none. `more`: see MaskMaker."""
    usual = engine.masking._masks
    assert usual is not None
    num_tokens, given = usual._num_words * WORD_BITS, {"ends": usual._ends, **more}
    made = LateMasks(num_tokens, usual._meter, is_late=is_late, **given)
    made._num_words = usual._num_words
    engine.masking._masks, engine.masking.waits = made, NEVER
    return made


def now_and_then(chance: random.Random, share: float) -> Callable[[MaskedRow], bool]:
    """So many of all."""
    return lambda row: chance.random() < share
