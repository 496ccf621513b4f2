"""The stacks that all adapters of a rank lie in, and the tables that say whose run is where.

A rank is a process of a group; what an adapter's matrices have is LoRA ranks, the stacks' rows.

    free -> written (by any thread; no step reads the run) -> placed in a slot -> cleared -> free

Which runs and slots are whose is decided elsewhere (engine/step/adapting.py); all ranks of a group
have the same. Memory is taken once: it is in the memory plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch

from cluster.adapter import MAX_LORA_RANK
from cluster.models.adapters.targets import (
    DOWN,
    GATE_UP,
    OUTPUT,
    QKV,
    TargetPart,
    adapter_targets,
    part_of,
    site_modules,
)
from cluster.models.model_split import ModelSplit
from engine.memory.large_pages import zeroed_bytes
from kernels.adapters import NO_ADAPTER, AdapterPart, AdapterSite


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRoom:
    """How much of adapters a rank has room for."""

    num_lora_ranks: int
    """Of all adapters together."""
    num_slots: int
    """Adapters, and one for rows without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerAdapters:
    """The products of a layer that adapters may add to; None: none may."""

    qkv: AdapterSite | None = None
    output: AdapterSite | None = None
    gate_up: AdapterSite | None = None
    down: AdapterSite | None = None


NO_ADAPTERS = LayerAdapters()
_ALIGNMENT_BYTES: Final = 64
"""Of a stack: a line of a CPU's cache."""


class AdapterBank:
    """Of one rank's part of a model. All but `write_down` and `write_up` is called between two
    steps."""

    def __init__(
        self, split: ModelSplit, room: AdapterRoom, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.config, self.room = split.config, room
        self.own_parts = {
            module: part_of(split, tensor)
            for module, tensor in adapter_targets(split.config).items()
        }
        self._dtype, self._device = dtype, device
        self._starts = self._table()
        self._untaken = zeroed_bytes(self._arena_bytes(), device)
        self._parts: dict[str, AdapterPart] = {}
        self.layers = [self._layer(index) for index in range(split.config.num_layers)]

    @property
    def num_bytes(self) -> int:
        """Memory of the stacks."""
        return sum(part.num_bytes for part in self._parts.values())

    @property
    def lora_rank_bytes(self) -> int:
        """Of that, what each LoRA rank takes."""
        return self.num_bytes // self.room.num_lora_ranks

    @torch.inference_mode()
    def write_down(self, module: str, start: int, down: torch.Tensor) -> None:
        """Puts some LoRA ranks of a module's part of an adapter, [lora_ranks, own inputs], to those
        from `start` on, which are nobody's."""
        self._parts[module].down[start : start + len(down)].copy_(down)

    @torch.inference_mode()
    def write_up(self, module: str, start: int, first: int, up: torch.Tensor) -> None:
        """As `write_down`, of the outputs from the rank's own `first` on: [outputs, lora_rank],
        with the module's scale, for the LoRA ranks from `start` on."""
        num_outputs, lora_rank = up.shape
        run = self._parts[module].up[start : start + lora_rank]
        run[:, first : first + num_outputs].copy_(up.T)

    @torch.inference_mode()
    def place(self, slot: int, start: int, lora_ranks: Mapping[str, int]) -> None:
        """From now on rows of the slot are those of the adapter that was written there, with so
        many LoRA ranks for each module."""
        assert slot != NO_ADAPTER, "the first slot is that of rows without an adapter"
        assert all(rank <= MAX_LORA_RANK for rank in lora_ranks.values()), "settings refuse more"
        self._starts[slot] = start
        for module, part in self._parts.items():
            part.lora_ranks[slot] = lora_ranks.get(module, 0)

    def clear(self, slot: int) -> None:
        """Nobody has the slot any more."""
        self.place(slot, 0, {})

    def _table(self) -> torch.Tensor:
        return torch.zeros(self.room.num_slots, dtype=torch.int32, device=self._device)

    def _layer(self, index: int) -> LayerAdapters:
        return LayerAdapters(
            qkv=self._site(index, QKV),
            output=self._site(index, OUTPUT),
            gate_up=self._site(index, GATE_UP),
            down=self._site(index, DOWN),
        )

    def _site(self, index: int, site: tuple[str, ...]) -> AdapterSite | None:
        modules = site_modules(index, site)
        if not all(module in self.own_parts for module in modules):
            return None
        parts: list[AdapterPart] = []
        column = 0
        for module in modules:
            part = self._part(self.own_parts[module], column)
            column += part.up.shape[1]
            self._parts[module] = part
            parts.append(part)
        return AdapterSite(parts=tuple(parts), starts=self._starts, max_lora_rank=MAX_LORA_RANK)

    def _part(self, part: TargetPart, first_column: int) -> AdapterPart:
        return AdapterPart(
            down=self._stack(len(part.inputs)),
            up=self._stack(len(part.outputs)),
            lora_ranks=self._table(),
            first_column=first_column,
        )

    def _arena_bytes(self) -> int:
        """All stacks, one behind the other: a step reads them in this order."""
        parts = self.own_parts.values()
        return sum(
            self._stack_bytes(len(part.inputs)) + self._stack_bytes(len(part.outputs))
            for part in parts
        )

    def _stack_bytes(self, width: int) -> int:
        num_bytes = self.room.num_lora_ranks * width * self._dtype.itemsize
        return math.ceil(num_bytes / _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES

    def _stack(self, width: int) -> torch.Tensor:
        taken = self._stack_bytes(width)
        memory, self._untaken = self._untaken[:taken], self._untaken[taken:]
        size = (self.room.num_lora_ranks, width)
        return memory.view(self._dtype)[: math.prod(size)].view(size)
