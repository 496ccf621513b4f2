"""What a model makes of a whole prompt, in place of tokens: an embedding, or a score.

The checkpoint says so (`hf/pooling.py`), or an operator does, of any model that makes text.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from cluster.errors import ConfigError


class PoolingKind(enum.StrEnum):
    """Which rows of the last hidden states count, and what they become."""

    LAST = "last"
    """An embedding: the last token's."""
    MEAN = "mean"
    """An embedding: the mean of all tokens'."""
    CLASSIFIER = "classifier"
    """A score: the last token's, times the one row of a classification head."""
    YES_NO = "yes-no"
    """A score: the logit of "yes" against that of "no", behind the last token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """How one model pools."""

    kind: PoolingKind
    generates: bool = False
    """It makes text as well."""
    normalizes: bool = True
    """Embeddings have a length of 1."""
    dimensions: tuple[int, ...] | None = None
    """An embedding may be cut to, as it was trained (matryoshka); empty: any; None: it may not."""
    has_sigmoid: bool = True
    """A score goes through one."""
    answer_ids: tuple[int, int] | None = None
    """The tokens of "yes" and "no", where these are what is scored."""

    @property
    def is_embedding(self) -> bool:
        """False where it scores pairs of texts."""
        return self.kind in (PoolingKind.LAST, PoolingKind.MEAN)

    @property
    def reads_every_row(self) -> bool:
        """No token's hidden state may be missing, cached or not."""
        return self.kind is PoolingKind.MEAN


def resolve_pooling(own: Pooling | None, asked: str, *, matryoshka: bool = False) -> Pooling | None:
    """`own`: the checkpoint's; `asked`: the word of --pooling. None: the model makes text alone.

    Raises ConfigError for words that do not go together with the checkpoint.
    """
    if own is not None and asked not in ("auto", own.kind.value):
        raise ConfigError(
            f"--pooling is {asked}; this checkpoint is made for {own.kind.value} and for nothing "
            "else: leave the option out",
            param="pooling",
        )
    pooling = own
    if own is None and asked not in ("auto", "none"):
        pooling = Pooling(kind=PoolingKind(asked), generates=True)
    if not matryoshka:
        return pooling
    if pooling is None or not pooling.is_embedding:
        raise ConfigError(
            "--matryoshka is about embeddings, and this model makes none; see --pooling",
            param="matryoshka",
        )
    return replace(pooling, dimensions=pooling.dimensions or ())
