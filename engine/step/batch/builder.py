"""From sequences and token counts to the tensors of one step."""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import numpy as np
import torch

from engine.model.ragged_batch import RaggedBatch
from engine.step.batch.decode_memory import DecodeMemory
from engine.step.batch.step_work import Span
from engine.step.requests.sequence import Sequence


class BatchBuilder:
    """Keeps the tensors of steps that only decode; a batch is valid until the next one is built."""

    def __init__(self, block_size: int, device: torch.device) -> None:
        self._block_size = block_size
        self._device = device
        self._memory = DecodeMemory(0, 0, block_size)

    def build(self, spans: Ordered[Span], num_decodes: int) -> RaggedBatch:
        """See build_batch."""
        sequences = [span.sequence for span in spans if span.num_tokens == 1 and span.completes]
        only_decodes = len(sequences) == num_decodes == len(spans)
        if not only_decodes or self._device.type != "cpu":
            return build_batch(spans, num_decodes, block_size=self._block_size, device=self._device)
        if not self._memory.fits(sequences):
            self._memory = DecodeMemory.fitting(sequences, self._block_size)
        return self._memory.write(sequences)

    def build_ahead(self, sequences: Ordered[Sequence], num_ahead: Ordered[int]) -> RaggedBatch:
        """A step of decodes, on the host; see DecodeMemory.write_ahead."""
        if not self._memory.fits(sequences, 1):
            self._memory = DecodeMemory.fitting(sequences, self._block_size)
        return self._memory.write_ahead(sequences, num_ahead)


def build_batch(
    spans: Ordered[Span], num_decodes: int, *, block_size: int, device: torch.device
) -> RaggedBatch:
    """The first `num_decodes` spans have one token each. Every span's blocks reach up to its end.

    Logit rows are in the order of the spans, and of a span as `Span.logit_rows` has them.
    """
    lengths = np.array([span.num_tokens for span in spans], dtype=np.int64)  # [num_seqs]
    starts = np.zeros(len(spans) + 1, dtype=np.int64)  # [num_seqs + 1]
    np.cumsum(lengths, out=starts[1:])
    contexts = np.array([span.end for span in spans], dtype=np.int64)  # [num_seqs]
    tables = _block_tables(spans, int(contexts.max()), block_size)
    row_of_token = np.repeat(np.arange(len(spans)), lengths)  # [num_tokens]
    positions = np.arange(starts[-1]) + np.repeat(contexts - starts[1:], lengths)  # [num_tokens]
    blocks = tables[row_of_token, positions // block_size].astype(np.int64)  # [num_tokens]
    wanted = [
        start + row
        for start, span in zip(starts[:-1], spans, strict=True)
        for row in span.logit_rows
    ]

    adapter_slots = [span.sequence.adapter_slot for span in spans]

    def tensor(values: np.ndarray[tuple[int, ...], np.dtype[np.int64 | np.int32]]) -> torch.Tensor:
        return torch.from_numpy(values).to(device)

    return RaggedBatch(
        token_ids=tensor(_token_ids(spans)),
        positions=tensor(positions),
        slots=tensor(blocks * block_size + positions % block_size),
        query_starts=tensor(starts.astype(np.int32)),
        context_lens=tensor(contexts.astype(np.int32)),
        block_tables=tensor(tables),
        logit_rows=tensor(np.array(wanted, dtype=np.int64)),
        num_decodes=num_decodes,
        max_query_len=int(lengths.max()),
        max_context_len=int(contexts.max()),
        adapters=tensor(np.repeat(adapter_slots, lengths).astype(np.int32))
        if any(adapter_slots)
        else None,
    )


def _token_ids(spans: Ordered[Span]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    token_ids: list[int] = []
    for span in spans:
        token_ids += span.sequence.token_ids[span.sequence.num_computed : span.end]
        token_ids += span.draft
    return np.array(token_ids, dtype=np.int64)


def _block_tables(
    spans: Ordered[Span], max_context: int, block_size: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    width = -(-max_context // block_size)
    tables = np.zeros((len(spans), width), dtype=np.int32)  # [num_seqs, max_blocks]
    for row, span in enumerate(spans):
        num_blocks = -(-span.end // block_size)
        tables[row, :num_blocks] = np.frombuffer(span.sequence.blocks.block_ids, np.int32)[
            :num_blocks
        ]
    return tables
