"""The tensors of a draft model's steps: tokens that are read, then one guess after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine.model.ragged_batch import RaggedBatch

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReadRow:
    """Tokens that one sequence's draft KV lacks."""

    token_ids: Sequence[int]
    first: int
    """Place of the first of them in the sequence."""
    block_ids: Sequence[int]
    """Up to the last place that is written, in this step or by guesses after it."""

    @property
    def end(self) -> int:
        """Tokens with KV afterwards."""
        return self.first + len(self.token_ids)


def reading(rows: Sequence[ReadRow], block_size: int, *, wants_logits: bool) -> RaggedBatch:
    """All rows side by side; the logits of the last token of each, where they are wanted."""
    lengths = np.array([len(row.token_ids) for row in rows], dtype=np.int64)  # [num_seqs]
    ends = np.cumsum(lengths)
    contexts = np.array([row.end for row in rows], dtype=np.int64)  # [num_seqs]
    places = np.concatenate([np.arange(row.first, row.end, dtype=np.int64) for row in rows])
    tables = block_tables(rows)
    row_of_token = np.repeat(np.arange(len(rows)), lengths)  # [num_tokens]
    token_ids = np.concatenate([np.asarray(row.token_ids, dtype=np.int64) for row in rows])
    is_decode = bool((lengths == 1).all())
    return RaggedBatch(
        token_ids=torch.from_numpy(token_ids),
        positions=torch.from_numpy(places),
        slots=torch.from_numpy(_slots(tables, row_of_token, places, block_size)),
        query_starts=torch.from_numpy(np.concatenate(([0], ends)).astype(np.int32)),
        context_lens=torch.from_numpy(contexts.astype(np.int32)),
        block_tables=torch.from_numpy(tables),
        logit_rows=torch.from_numpy(ends - 1 if wants_logits else ends[:0]),
        num_decodes=len(rows) if is_decode and wants_logits else 0,
        max_query_len=int(lengths.max()),
        max_context_len=int(contexts.max()),
    )


def guessing(
    token_ids: Sequence[int], places: _Ints, tables: npt.NDArray[np.int32], block_size: int
) -> RaggedBatch:
    """One token of each sequence, at its place; `tables` as of `block_tables`."""
    num_seqs = len(token_ids)
    rows = np.arange(num_seqs)
    return RaggedBatch(
        token_ids=torch.tensor(token_ids, dtype=torch.int64),
        positions=torch.from_numpy(places),
        slots=torch.from_numpy(_slots(tables, rows, places, block_size)),
        query_starts=torch.arange(num_seqs + 1, dtype=torch.int32),
        context_lens=torch.from_numpy((places + 1).astype(np.int32)),
        block_tables=torch.from_numpy(tables),
        logit_rows=torch.arange(num_seqs),
        num_decodes=num_seqs,
        max_query_len=1,
        max_context_len=int(places.max()) + 1,
    )


class Rounds:
    """Those of a draft after the first, whose sequences have read these rows."""

    def __init__(self, rows: Sequence[ReadRow], block_size: int) -> None:
        self._block_size = block_size
        self._tables = block_tables(rows)
        self._places = np.array([row.end for row in rows], dtype=np.int64)  # [num_seqs]

    def batch(self, token_ids: Sequence[int], going: list[int], num_guessed: int) -> RaggedBatch:
        """The last guess of each of `going`, by its row, behind which it is the `num_guessed`th."""
        places, tables = self._places[going] + num_guessed - 1, self._tables[going]
        return guessing(token_ids, places, tables, self._block_size)


def block_tables(rows: Sequence[ReadRow]) -> npt.NDArray[np.int32]:
    """int32 [num_seqs, most blocks of a row], filled up with zeros."""
    tables = np.zeros((len(rows), max(len(row.block_ids) for row in rows)), dtype=np.int32)
    for table, row in zip(tables, rows, strict=True):
        table[: len(row.block_ids)] = row.block_ids
    return tables


def _slots(
    tables: npt.NDArray[np.int32], row_of_token: _Ints, places: _Ints, block_size: int
) -> _Ints:
    blocks = tables[row_of_token, places // block_size].astype(np.int64)
    slots: _Ints = blocks * block_size + places % block_size
    return slots
