"""The fleets that tests share, one at a time: to start one costs ten seconds of both cores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.support import Fleet, running_fleet

ENGINE = ("--max-context-tokens", "2048", "--kv-memory-bytes", str(400 * 2**20))
TIGHT_ENGINE = (
    *("--dtype", "float32", "--max-context-tokens", "1024"),
    *("--kv-memory-bytes", str(90 * 2**20)),  # 120 blocks: three prompts of 512 tokens
)
PATIENT = ("--prefill-progress-timeout-s", "60")
"""For tests of what a prefill worker has done, on a machine that gives it no time for seconds."""


@dataclass(frozen=True, slots=True)
class FleetKind:
    """What a fleet is started with."""

    arguments: tuple[str, ...]
    num_workers: int


FLEETS = {
    "pair_fleet": FleetKind(("--dtype", "float32", *ENGINE, *PATIENT), 2),
    "fleet_of_two_ranks": FleetKind(
        (
            *("--prefill", "0", "--dtype", "float32", *ENGINE, "--tensor-parallel-size", "2"),
            *("--warm-spares", "1"),
        ),
        1,
    ),
    "unequal_fleet": FleetKind(
        (
            *("--dtype", "float32", *ENGINE, *PATIENT),
            *("--prefill-tensor-parallel-size", "3", "--decode-tensor-parallel-size", "2"),
            *("--prefill-block-size-tokens", "16", "--decode-block-size-tokens", "64"),
        ),
        2,
    ),
    "double_fleet": FleetKind(
        (
            *("--prefill", "2", "--decode", "2", "--dtype", "float32", *ENGINE),
            *("--drain-timeout-s", "120"),  # what a worker has begun it ends, on a busy machine too
        ),
        4,
    ),
    "served_fleet": FleetKind((*ENGINE, *PATIENT), 2),
    "stormy_fleet": FleetKind(("--prefill", "2", *TIGHT_ENGINE), 3),
    "embedding_fleet": FleetKind(
        (
            *("--prefill", "2", "--decode", "0", "--dtype", "float32", *ENGINE),
            *("--pooling", "last", "--matryoshka"),
        ),
        2,
    ),
    "fleet_of_both": FleetKind(
        (
            *("--dtype", "float32", *ENGINE, "--pooling", "mean"),
            *("--prefill-tensor-parallel-size", "2"),
        ),
        2,
    ),
}
"""By the names of their fixtures, in the order in which they run."""
OTHERS = "others"
FILES = ("test_seeing", "test_parity", OTHERS, "test_faults", "test_drain", "test_frozen_engine")
"""In their order on a fleet: the first want one without a history, the last end its processes."""


def turn_of(fixtures: Sequence[str], file: str) -> tuple[int, int]:
    """When a test comes that asks for these fixtures: sorted by it, each fleet starts once."""
    turns = [turn for turn, name in enumerate(FLEETS) if name in fixtures]
    return min(turns, default=len(FLEETS)), FILES.index(file if file in FILES else OTHERS)


class OneFleet:
    """Whichever fleet was asked for last; `close` ends it."""

    def __init__(self, make_log_dir: Callable[[str], Path]) -> None:
        self._make_log_dir = make_log_dir
        self._name: str | None = None
        self._running = contextlib.ExitStack()
        self._fleet: Fleet

    def running(self, name: str) -> Fleet:
        """That fleet. Another one is ended, with the checks of an end; one that has died is
        started again."""
        if name != self._name or self._fleet.process.poll() is not None:
            self.close()
            kind, log_dir = FLEETS[name], self._make_log_dir(name)
            self._fleet = self._running.enter_context(
                running_fleet(log_dir, *kind.arguments, num_workers=kind.num_workers)
            )
            self._name = name
        return self._fleet

    def close(self) -> None:
        """Raises what was left behind."""
        self._name = None
        self._running.close()
