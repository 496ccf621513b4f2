"""Replayed steps with drafts: which batches are such, and the graph of each shape."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.memory.kv_pool import KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.runner.draft_buffers import DraftBuffers
from engine.runner.draft_shapes import DraftShape, DraftShapes
from engine.runner.graph_backend import GraphBackend
from engine.runner.left_rows import LeftRows
from engine.runner.static_tables import BufferShape


class DraftGraphs:
    """One runner's: beside its graphs of decodes, and what steps leave lies where theirs does."""

    def __init__(
        self,
        decoder: Decoder,
        pool: KvPool,
        left: LeftRows,
        *,
        shapes: DraftShapes,
        shape: BufferShape,
    ) -> None:
        """`left` is of as many rows as a shape has at most."""
        self._decoder, self._pool, self._left = decoder, pool, left
        self._shapes = shapes
        self._buffers = DraftBuffers(shapes, shape, pool.tensor.device)
        self._graphs: dict[DraftShape, Callable[[], None]] = {}

    def capture(self, shape: DraftShape, backend: GraphBackend) -> None:
        """At load, before the first step."""
        self._buffers.clear(shape)
        self._graphs[shape] = backend.capture(self._step_of(shape))

    def forget(self) -> None:
        """Steps of afterwards are computed as they are."""
        self._graphs.clear()

    def shape_of(self, batch: RaggedBatch) -> DraftShape | None:
        """Of what it is replayed by; None: it is no step with drafts, or holds more than any, or a
        context that is shorter than its padded rows would be. A function of the batch alone: all
        ranks of a group answer alike."""
        wants_all = len(batch.token_ids) == len(batch.logit_rows)
        if not wants_all or batch.max_query_len < 2 or batch.is_pooled:
            return None
        if batch.adapters is not None or not self._graphs:
            return None
        shape = self._shapes.holding(len(batch.context_lens), batch.max_query_len)
        if shape is None or int(batch.context_lens.min()) < shape.rows_each:
            return None
        return shape

    def replay(self, batch: RaggedBatch, shape: DraftShape) -> torch.Tensor:
        """Returns logits as ModelRunner.forward does, valid until the next step."""
        self._buffers.fill(batch, shape)
        self._graphs[shape]()
        return self._left.logits[: len(batch.logit_rows)]

    def _step_of(self, shape: DraftShape) -> Callable[[], None]:
        batch = self._buffers.batch(shape)

        def step() -> None:
            self._buffers.unpack(shape)
            self._left.take(self._decoder, batch, self._pool)

        return step
