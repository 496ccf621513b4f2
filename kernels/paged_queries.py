"""The part of a ragged batch that attention reads. `engine.ragged_batch.RaggedBatch` is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.door import require, require_dtype, require_shape


class PagedQueries(Protocol):
    """Sequences side by side; decodes first. Sequence s has query rows
    [query_starts[s], query_starts[s + 1]), the last of which is token context_lens[s] - 1."""

    @property
    def query_starts(self) -> torch.Tensor: ...  # int32 [num_seqs + 1]

    @property
    def context_lens(self) -> torch.Tensor: ...  # int32 [num_seqs]

    @property
    def block_tables(self) -> torch.Tensor: ...  # int32 [num_seqs, max_blocks]

    @property
    def num_decodes(self) -> int: ...

    @property
    def max_query_len(self) -> int: ...

    @property
    def max_context_len(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedQueryTables:
    """The plain form of PagedQueries, for tests and benchmarks of kernels."""

    query_starts: torch.Tensor
    context_lens: torch.Tensor
    block_tables: torch.Tensor
    num_decodes: int
    max_query_len: int
    max_context_len: int


def check_attention(query: torch.Tensor, kv_layer: torch.Tensor, queries: PagedQueries) -> None:
    """The door of every paged attention: shapes, dtypes and strides; not the block ids."""
    require(query.dim() == 3, f"query has {query.dim()} dimensions; needed: 3")
    require(kv_layer.dim() == 5, f"kv_layer has {kv_layer.dim()} dimensions; needed: 5")
    _, num_heads, head_dim = query.shape
    _, two, num_kv_heads, _, kv_head_dim = kv_layer.shape
    require(two == 2, f"kv_layer holds {two} tensors per block; needed: 2, K and V")
    require(
        num_heads % num_kv_heads == 0 and head_dim == kv_head_dim,
        f"{num_heads} query heads of {head_dim} do not fit {num_kv_heads} of {kv_head_dim}",
    )
    require_dtype("kv_layer", kv_layer, query.dtype)
    require_dense_blocks(kv_layer)
    _check_tables(queries)


def require_dense_blocks(kv_layer: torch.Tensor) -> None:
    """Inside one block, a layer [2, num_kv_heads, block_size, head_dim] has no gaps."""
    _, _, num_kv_heads, block_size, head_dim = kv_layer.shape
    head = block_size * head_dim
    dense = (num_kv_heads * head, head, head_dim, 1)
    require(kv_layer.stride()[1:] == dense, f"a block's layer is strided: {kv_layer.stride()}")


def _check_tables(queries: PagedQueries) -> None:
    num_seqs = queries.context_lens.shape[0]
    require_shape("query_starts", queries.query_starts, (num_seqs + 1,))
    for name in ("query_starts", "context_lens", "block_tables"):
        require_dtype(name, getattr(queries, name), torch.int32)
    require(
        queries.block_tables.dim() == 2 and queries.block_tables.shape[0] == num_seqs,
        f"block_tables is {tuple(queries.block_tables.shape)} for {num_seqs} sequences",
    )
