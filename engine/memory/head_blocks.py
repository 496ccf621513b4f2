"""The part of every block that a head has: its keys and values, and a mark of what these are of.

    a pair's row is about to be written -> the block's mark is gone
    all pairs up to a token were read   -> mark: the name of all tokens up to there, and its state

A mark stands for all rows of a block up to its token, made of the model's own states of exactly the
tokens that it names, from the text's beginning on. It travels with the block: copied, cached or
handed over, it is right or it does not match. What a guess has written has no mark.

    bytes behind the head's layer:   name, uint64 (0: none) | state, float32 [hidden] | unused

Of a group of ranks the first has it, whole, behind its own KV heads of the model's layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from engine.contract.head_in_blocks import MARK_BYTES, STATE_ITEM_BYTES, HeadInBlocks
from engine.memory.kv_pool import KvPool, SomeLayers

NONE = 0
"""No mark."""
_Names = npt.NDArray[np.uint64]


class _Marks(Protocol):
    """Of all blocks."""

    def write(self, block_ids: list[int], marks: _Names | int) -> None: ...

    def are(self, block_ids: list[int], marks: _Names) -> bool: ...


class _HostMarks:
    """In memory that the host has."""

    def __init__(self, marks: torch.Tensor) -> None:
        """int64 [num_blocks], the names' bits."""
        self._marks: _Names = marks.numpy().view(np.uint64)

    def write(self, block_ids: list[int], marks: _Names | int) -> None:
        """A mark for each, or one for all."""
        self._marks[block_ids] = marks

    def are(self, block_ids: list[int], marks: _Names) -> bool:
        """Whether each has its mark."""
        return np.array_equal(self._marks[block_ids], marks)


class DeviceMarks:
    """In a device's memory. Never run on a GPU."""

    def __init__(self, marks: torch.Tensor) -> None:
        """int64 [num_blocks], the names' bits."""
        self._marks = marks

    def write(self, block_ids: list[int], marks: _Names | int) -> None:
        """A mark for each, or one for all."""
        ids = torch.tensor(block_ids, dtype=torch.int64, device=self._marks.device)
        if isinstance(marks, int):
            self._marks.index_fill_(0, ids, marks)
        else:
            self._marks.index_copy_(0, ids, self._there(marks))

    def are(self, block_ids: list[int], marks: _Names) -> bool:
        """Whether each has its mark: waits for the device."""
        ids = torch.tensor(block_ids, dtype=torch.int64, device=self._marks.device)
        return torch.equal(self._marks[ids], self._there(marks))

    def _there(self, marks: _Names) -> torch.Tensor:
        return torch.from_numpy(marks.view(np.int64)).to(self._marks.device)


class HeadBlocks:
    """Of one pool, which has to live as long: views. On a GPU whoever writes or reads marks waits
    for what was launched before."""

    def __init__(self, pool: KvPool, room: HeadInBlocks) -> None:
        """`pool`: deeper than the model by `room`."""
        layers, planes, heads, *rest = pool.layout.block_shape
        first = layers - room.layers_at(heads)
        whole = (1, planes, room.num_kv_heads, *rest)
        items = pool.tensor.view(pool.num_blocks, -1)  # [num_blocks, values of a block]
        start = first * math.prod((planes, heads, *rest))
        end = start + math.prod(whole)
        self.kv = SomeLayers(items[:, start:end].view(pool.num_blocks, *whole))
        """Where the head's keys and values are."""
        rows = items.view(torch.uint8)  # [num_blocks, block_bytes]
        start = end * pool.tensor.element_size()
        behind = start + MARK_BYTES
        marks = rows[:, start:behind].view(torch.int64)[:, 0]  # [num_blocks]
        self._marks: _Marks = _HostMarks(marks) if marks.is_cpu else DeviceMarks(marks)
        end = behind + STATE_ITEM_BYTES * room.hidden_size
        self._states = rows[:, behind:end].view(torch.float32)  # [num_blocks, hidden]

    def forget(self, block_ids: Sequence[int]) -> None:
        """Rows of these are about to be written."""
        self._marks.write(list(block_ids), NONE)

    def mark(self, block_ids: Sequence[int], marks: Sequence[int], states: torch.Tensor) -> None:
        """All rows up to a token are there. `states` is float32 [num_blocks, hidden]: of it."""
        ids = list(block_ids)
        self._states[ids] = states
        self._marks.write(ids, np.array(marks, dtype=np.uint64))

    def state_behind(self, block_ids: Sequence[int], marks: Sequence[int]) -> torch.Tensor | None:
        """float32 [hidden], a copy: of the last token that the last mark names; None: not all of
        the blocks have these marks."""
        ids = list(block_ids)
        if not ids or not self._marks.are(ids, np.array(marks, dtype=np.uint64)):
            return None
        return self._states[ids[-1]].clone()
