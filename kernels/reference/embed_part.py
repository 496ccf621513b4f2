"""Rows of a part of an embedding, in plain torch."""

from __future__ import annotations

import torch

from kernels.linear import Linear


def embed_part(
    matrix: Linear, token_ids: torch.Tensor, *, first_token: int, vocab_size: int
) -> torch.Tensor:
    """token_ids int64 [n] -> float32 [n, in_features]: the row of a token that is among the
    matrix's, zeros for any other.

    Raises IndexError for a token that is nobody's; on a GPU, which would have to wait to know, it
    becomes zeros.
    """
    if token_ids.device.type == "cpu":
        _check(token_ids, vocab_size)
    own = token_ids - first_token
    is_own = (own >= 0) & (own < matrix.shape[0])
    rows = matrix.rows(own.where(is_own, 0))
    return rows.masked_fill_(~is_own[:, None], 0.0)


def _check(token_ids: torch.Tensor, vocab_size: int) -> None:
    num_unknown = int(((token_ids < 0) | (token_ids >= vocab_size)).sum())
    if num_unknown:
        raise IndexError(f"{num_unknown} token ids are not in the vocabulary")
