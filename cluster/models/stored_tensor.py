"""What the tables of tensors say of each: its shape, and by what ranks share it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Share(enum.Enum):
    """Whose rows a tensor has, or whose columns; `ModelSplit` says which are a rank's."""

    WHOLE = enum.auto()
    """Nobody's: norms, routers and the projections down to latents are the same at every rank."""
    TOKENS = enum.auto()
    """A run of the vocabulary's."""
    HEADS = enum.auto()
    """Query heads'."""
    KV_HEADS = enum.auto()
    INNER = enum.auto()
    """A run of the inner columns of a feed-forward."""
    SHARED = enum.auto()
    """As INNER, of the shared experts."""
    EXPERT = enum.auto()
    """As INNER, of one routed expert, among the ranks that have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a model."""

    shape: tuple[int, ...]
    share: Share = Share.WHOLE
    is_summed: bool = False
    """Of a projection whose outputs the ranks add up: its matrix is shared by columns, and its bias
    is rank 0's."""
    expert: int | None = None
    """The routed expert that it belongs to."""

    @property
    def is_matrix(self) -> bool:
        """Not a vector: a norm or a bias."""
        return len(self.shape) > 1
