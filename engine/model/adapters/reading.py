"""Reads an adapter into a bank: of all tensors the rank's part, a chunk of the file at a time.

Until all of the file was read nobody knows that it is the adapter it should be; what is written
meanwhile is written to LoRA ranks that are nobody's, and to no more of them than it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from cluster.errors import AdapterRefused, AdapterUnread
from cluster.models.adapters.files import open_adapter
from cluster.models.adapters.tensor_file import TensorRows
from cluster.models.adapters.tensors import AdaptedModule
from engine.model.adapters.bank import AdapterBank
from engine.model.adapters.permit import Permit
from engine.model.adapters.words import StageAdapter


def read_into(
    bank: AdapterBank, word: StageAdapter, permit: Permit | None = None
) -> dict[str, int]:
    """To the word's LoRA ranks, which are nobody's while the `permit` is good (None: for ever);
    returns how many each module has. Raises AdapterUnread for a folder that has another adapter
    than the word says, by now, and AdapterRefused for numbers that are not finite, and without a
    permit."""
    permit = Permit() if permit is None else permit
    root, folder = Path(word.root), Path(word.folder)
    with open_adapter(root, folder, bank.config, progressed=permit.go_on) as adapter:
        if adapter.lora_rank != word.lora_rank:
            raise _changed(word)
        part = _OwnPart(bank, word.start, adapter.modules, permit)
        for rows in adapter.rows():
            part.take(rows)
        if adapter.read().digest != word.digest:
            raise _changed(word)
    part.check_finite()
    return {module: adapted.rank for module, adapted in adapter.modules.items()}


def _changed(word: StageAdapter) -> AdapterUnread:
    name, digest = Path(word.folder).name, word.digest
    return AdapterUnread(f"the files in {name} have changed since {digest} was loaded from them")


class _OwnPart:
    """What a rank has of an adapter. It goes to the bank as it comes, while it is finite."""

    def __init__(
        self, bank: AdapterBank, start: int, modules: Mapping[str, AdaptedModule], permit: Permit
    ) -> None:
        self._bank, self._start, self._permit = bank, start, permit
        self._downs = {AdaptedModule.down_name(module): module for module in modules}
        self._ups = {AdaptedModule.up_name(module): module for module in modules}
        self._modules = modules
        self._not_finite: str | None = None
        """The first module with such numbers: the digest says first whether they are its own."""

    def take(self, rows: TensorRows) -> None:
        """Raises AdapterRefused without a permit."""
        dtype: torch.dtype = getattr(torch, rows.dtype)
        values = torch.frombuffer(rows.data, dtype=dtype).view(-1, rows.width)
        if (module := self._downs.get(rows.name)) is not None:
            self._take_down(module, rows.first, values)
        else:
            self._take_up(self._ups[rows.name], rows.first, values)

    def check_finite(self) -> None:
        """Raises AdapterRefused."""
        if self._not_finite is not None:
            raise AdapterRefused(
                f"the tensors of {self._not_finite} have values that are not finite"
            )

    def _take_down(self, module: str, first: int, values: torch.Tensor) -> None:
        """[some LoRA ranks, inputs]"""
        own = self._bank.own_parts[module].inputs
        down = values[:, own.start : own.stop].float()
        if self._is_finite(module, down):
            with self._permit.writing():
                self._bank.write_down(module, self._start + first, down)

    def _take_up(self, module: str, first: int, values: torch.Tensor) -> None:
        """[some outputs, LoRA ranks]. The scale goes in before it is rounded."""
        own = self._bank.own_parts[module].outputs
        begin, end = max(own.start, first), min(own.stop, first + len(values))
        if begin >= end:
            return
        up = values[begin - first : end - first].float() * self._modules[module].scale
        if self._is_finite(module, up):
            with self._permit.writing():
                self._bank.write_up(module, self._start, begin - own.start, up)

    def _is_finite(self, module: str, values: torch.Tensor) -> bool:
        if self._not_finite is None and not bool(values.isfinite().all()):
            self._not_finite = module
        return self._not_finite is None
