"""From the pooled hidden state of a prompt to what is told of it: an embedding, or a score."""

from __future__ import annotations

import torch

from cluster.errors import BadCheckpoint
from cluster.models.card import ModelCard
from cluster.models.pooling import Pooling
from cluster.models.tensor_part import TensorPart
from cluster.models.tensors import EMBEDDING, LM_HEAD, SCORE_HEAD
from engine.model.weights.open_checkpoint import open_checkpoint

LEAST_NORM = 1e-12
"""As torch.nn.functional.normalize has it."""


class PooledHead:
    """Of one model; float32 on the host."""

    def __init__(self, pooling: Pooling, row: torch.Tensor | None = None) -> None:
        """`row`: float32 [hidden], that a score is the product with; None of embeddings."""
        self.pooling = pooling
        self._row = row

    @classmethod
    def of(cls, card: ModelCard, pooling: Pooling) -> PooledHead:
        """Reads what it needs of the checkpoint. Raises BadCheckpoint."""
        return cls(pooling, None if pooling.is_embedding else _score_row(card, pooling))

    def told(self, pooled: torch.Tensor, dimensions: int | None = None) -> torch.Tensor:
        """float32 [hidden] -> float32 [dimensions or hidden], or [1] of a score."""
        if self._row is None:
            cut = pooled if dimensions is None else pooled[:dimensions]
            if not self.pooling.normalizes and dimensions is None:
                return cut
            length: torch.Tensor = torch.linalg.vector_norm(cut)
            return cut / length.clamp_min(LEAST_NORM)
        score = (pooled * self._row).sum(dtype=torch.float64).float().reshape(1)
        return torch.sigmoid(score) if self.pooling.has_sigmoid else score


def _score_row(card: ModelCard, pooling: Pooling) -> torch.Tensor:
    """Of a classification head the one there is; of a head for text the row of "yes" less that of
    "no": a sigmoid of its product is the softmax over the two."""
    checkpoint = open_checkpoint(card)
    if pooling.answer_ids is None:
        shape = (1, card.config.hidden_size)
        if SCORE_HEAD not in checkpoint.names() or checkpoint.shape(SCORE_HEAD) != shape:
            raise BadCheckpoint(
                f"{card.name} has no {SCORE_HEAD} of shape {shape}; download the model again"
            )
        return checkpoint.read(SCORE_HEAD).float()[0]
    name = EMBEDDING if card.config.tie_word_embeddings else LM_HEAD
    yes, no = (
        checkpoint.read(name, TensorPart(rows=range(token_id, token_id + 1))).float()[0]
        for token_id in pooling.answer_ids
    )
    return yes - no
