"""Plays a recording: natively where the kernel set has a native form of all of it, else one kernel
after the other, on any device.

The kernels are the same either way, on the same numbers: so are the bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from kernels.tape.kernel_set import KernelSet
from kernels.tape.operations import Operation
from kernels.tape.recording import NoNativeForm, Player, Recording, StepQueries
from kernels.tape.rows import Rows
from kernels.tape.steps import PlayedStep, take


def player_of(recording: Recording, kernels: KernelSet) -> Player:
    """The fastest that this set has for it; where that is the slow one, it says why."""
    if kernels.play_natively is None:
        return KernelPlayer(recording, kernels, f"the {kernels.name} kernels have no programs")
    try:
        return kernels.play_natively(recording)
    except NoNativeForm as missing:
        return KernelPlayer(recording, kernels, f"no native form of {missing}")


class KernelPlayer:
    """A Player that calls the set's kernels one by one. Which kernels run, and in what order, does
    not depend on any tensor's numbers: a step on a GPU can be captured, but for one whose ranks
    exchange rows, where the host has to know how many."""

    num_native_calls = 0

    def __init__(
        self, recording: Recording, kernels: KernelSet, why_by_kernels: str = "as was asked for"
    ) -> None:
        self.why_by_kernels = why_by_kernels
        self._kernels, self._recording = kernels, recording
        operations = recording.operations
        self._lines = [
            (take.dispatch(type(operation)), operation, spent)
            for operation, spent in zip(
                operations, spent_places(operations, recording.logits, *recording.left), strict=True
            )
        ]
        self._pool: torch.Tensor | None = None
        self._kv_layers: Sequence[torch.Tensor] = ()
        self._left: tuple[torch.Tensor, ...] = ()

    def __call__(self, batch: StepQueries, kv: torch.Tensor) -> torch.Tensor:
        """See Player."""
        return self.play(batch, kv, {})

    @property
    def has_alike_rows(self) -> bool:
        """See Player."""
        ask = self._kernels.has_alike_rows
        return ask is not None and ask(self._recording)

    @torch.inference_mode()
    def play(
        self, batch: StepQueries, kv: torch.Tensor, given: Mapping[int, torch.Tensor]
    ) -> torch.Tensor:
        """As a call, of a recording that begins with rows at these places: they are spent."""
        if self._pool is not kv:
            self._pool, self._kv_layers = kv, kv.unbind(dim=1)
        places = [given.get(place) for place in range(self._recording.num_places)]
        step = PlayedStep(self._kernels, batch, self._kv_layers, places)
        for run, operation, spent in self._lines:
            run(operation, step)
            for place in spent:
                places[place] = None
        self._left = tuple(step[rows] for rows in self._recording.left)
        return step[self._recording.logits]

    def left(self) -> tuple[torch.Tensor, ...]:
        """See Player."""
        return self._left


def spent_places(operations: Sequence[Operation], *results: Rows) -> list[tuple[int, ...]]:
    """For each operation the places that nothing reads after it: their memory is given back."""
    needed = {rows.place for rows in results}
    spent: list[tuple[int, ...]] = []
    for operation in reversed(operations):
        made = {rows.place for rows in operation.made()}
        used = {rows.place for rows in operation.used()}
        spent.append(tuple((made | used) - needed))
        needed = (needed - made) | used
    return spent[::-1]
