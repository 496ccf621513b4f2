"""A decoder on a GPU: decode steps are replayed graphs, everything else runs as it is.

    load     capture one graph per padded batch size, the largest first, all in one pool of memory
             where drafts are verified, one per shape of such steps as well: draft_shapes.py
    step     only decodes, not more than the largest size,
             none with an adapter                         -> pad, copy the numbers, replay
             with drafts, of a shape that was captured    -> the same: draft_graphs.py
             else                                         -> copy the batch, run the decoder
    launch   as a step of decodes; then sample, keep the tokens for the next, send them to the host

Batches arrive on the host. Logits are on the device, and valid until the next step. All work is the
current stream's, so that steps follow each other; nothing of a launch waits.

In a group every rank has its own runner and its own graphs, with the collectives inside. What a
rank captures, in what order, and which graph a batch is replayed by are functions of limits and
batch alone: the ranks meet in the same collectives without being told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import torch

from engine.memory.kv_pool import KvPool
from engine.memory.page_locked import SampledTokens
from engine.model.decoder import Decoder
from engine.model.load_phases import PhaseProgress
from engine.model.ragged_batch import RaggedBatch
from engine.runner.decode_buffers import DecodeBuffers
from engine.runner.draft_graphs import DraftGraphs
from engine.runner.draft_shapes import MOST_ROWS, DraftShapes
from engine.runner.graph_backend import GraphBackend
from engine.runner.left_rows import LeftRows
from engine.runner.static_tables import BufferShape
from engine.sampling.device_draw import draw_on_device
from engine.sampling.logits import SamplingRow
from kernels.dispatch.block_copy import block_copy

_STEP = 8
"""Between sizes from 8 on: padding then costs less than half of the rows of a tensor-core tile."""


def graph_sizes(max_num_seqs: int) -> list[int]:
    """Batch sizes that are captured: 1, 2, 4, 8, 16, 24, ..., and `max_num_seqs` itself."""
    sizes = [size for size in (1, 2, 4) if size < max_num_seqs]
    return [*sizes, *range(_STEP, max_num_seqs, _STEP), max_num_seqs]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLimits:
    """What is captured."""

    max_num_seqs: int
    max_context_tokens: int
    drafts: DraftShapes | None = None
    """None: there are none."""
    states_width: int = 0
    """Of what each row leaves for a head; 0: nothing."""


class CudaRunner:
    """A DrawingRunner, where it is alone, and a PartRunner. The pool's last block belongs to it:
    padding writes there."""

    def __init__(
        self,
        decoder: Decoder,
        pool: KvPool,
        *,
        limits: GraphLimits,
        backend: GraphBackend,
        progress: PhaseProgress,
    ) -> None:
        self._decoder = decoder
        self._pool = pool
        shape = BufferShape(
            num_rows=limits.max_num_seqs,
            max_context_tokens=limits.max_context_tokens,
            block_size=pool.layout.block_size,
            scratch_block=pool.num_blocks - 1,
        )
        device = pool.tensor.device
        self._buffers = DecodeBuffers(shape, device)
        vocab_size = decoder.config.vocab_size
        num_logits = max(limits.max_num_seqs, 0 if limits.drafts is None else MOST_ROWS)
        self._left = LeftRows(
            torch.empty(num_logits, vocab_size, device=device),
            torch.empty(num_logits, limits.states_width, device=device),
        )
        self._num_replayed: int | None = None
        """Rows of the last step; None: it was no replay."""
        self._graphs: dict[int, Callable[[], None]] = {}
        self._drafts: DraftGraphs | None = None
        if limits.drafts is not None:
            self._drafts = DraftGraphs(decoder, pool, self._left, shapes=limits.drafts, shape=shape)
        self._capture(limits, backend, progress)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner."""
        if pairs:
            ids = torch.tensor(pairs).to(self._pool.tensor.device)  # [num_pairs, 2]
            sources, targets = ids.T.contiguous()
            block_copy(self._pool.tensor, sources, self._pool.tensor, targets)

    @torch.inference_mode()
    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        if self._drafts is not None and (shape := self._drafts.shape_of(batch)) is not None:
            self._num_replayed = len(batch.token_ids)
            return self._drafts.replay(batch, shape)
        num_seqs = batch.num_decodes
        only_decodes = len(batch.token_ids) == len(batch.logit_rows) == num_seqs
        if (
            not only_decodes
            or batch.adapters is not None
            or num_seqs > max(self._graphs, default=0)
        ):
            self._num_replayed = None
            return self._decoder.forward(batch.to(self._pool.tensor.device), self._pool)
        return self._replay(batch)

    def states(self) -> torch.Tensor:
        """Of the last step: see Decoder."""
        if self._num_replayed is None:
            return self._decoder.states()
        return self._left.states[: self._num_replayed].clone()

    @torch.inference_mode()
    def launch(
        self,
        batch: RaggedBatch,
        rows: Sequence[SamplingRow],
        sources: Sequence[int | None],
    ) -> SampledTokens:
        """See LaunchingRunner."""
        return self.draw(self._replay(batch, sources), rows)

    @torch.inference_mode()
    def draw(self, logits: torch.Tensor, rows: Sequence[SamplingRow]) -> SampledTokens:
        """See DrawingRunner."""
        maxima, ids = draw_on_device(logits, rows)
        self._buffers.keep_sampled(ids)
        return SampledTokens(maxima, ids)

    def close(self) -> None:
        """See PartRunner: NCCL leaves no group while graphs have its collectives."""
        self._graphs.clear()
        if self._drafts is not None:
            self._drafts.forget()

    def _replay(
        self, batch: RaggedBatch, sources: Sequence[int | None] | None = None
    ) -> torch.Tensor:
        size = min(size for size in self._graphs if size >= batch.num_decodes)
        self._buffers.fill(batch, size, sources)
        self._graphs[size]()
        self._num_replayed = batch.num_decodes
        return self._left.logits[: batch.num_decodes]

    @torch.inference_mode()
    def _capture(self, limits: GraphLimits, backend: GraphBackend, progress: PhaseProgress) -> None:
        """The most rows first: what a graph allocates is used again by those after it."""
        captures: list[tuple[int, Callable[[], None]]] = [
            (size, partial(self._capture_decodes, size, backend))
            for size in graph_sizes(limits.max_num_seqs)
        ]
        if self._drafts is not None and limits.drafts is not None:
            captures += [
                (shape.num_rows, partial(self._drafts.capture, shape, backend))
                for shape in limits.drafts.all()
            ]
        captures.sort(key=itemgetter(0), reverse=True)
        for done, (_, capture) in enumerate(captures):
            progress("capture graphs", done / len(captures))
            capture()
        progress("capture graphs", 1.0)

    def _capture_decodes(self, size: int, backend: GraphBackend) -> None:
        self._graphs[size] = backend.capture(self._step_of(size))

    def _step_of(self, size: int) -> Callable[[], None]:
        """The whole step of `size` rows."""
        batch = self._buffers.batch(size)

        def step() -> None:
            self._buffers.unpack(size)
            self._left.take(self._decoder, batch, self._pool)

        return step
