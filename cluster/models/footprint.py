"""What a rank's part of a model takes in memory, from its shape alone: parameters, KV per token,
workspace. A model on one device is a group of one rank; of several, none holds more than the last.

No torch: `splitserve models show` prints it, the engine plans with it before it reads a weight.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass

from cluster.kv_shape import ITEM_BYTES
from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from cluster.models.stored_tensor import Share, StoredTensor
from cluster.models.tensors import expected_tensors, is_router
from cluster.sharding import RowSharing

HEADROOM_SHARE = 0.05
"""Of the memory available, not planned with: the process itself, fragmentation."""
LOGIT_ROWS = 64
"""Rows of float32 logits that a step is planned with."""
SCORED_ROWS = 64
"""Rows of logits in one step for prompts whose own tokens are scored, over all of them."""
_GROUP_BITS = {"int8": 8 + 1, "int4": 4 + 1}
"""Per value of a group of 32 with a scale and a minimum of 16 bits each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How many numbers a model, or a rank's part of one, is made of."""

    matrices: int
    """In the layers; what low-bit formats make small."""
    ends: int
    """Embedding and LM head; a tied one counts once."""
    vectors: int
    """Norms, biases and a mixture's gate: never quantized."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.matrices + self.ends + self.vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes, for one choice of formats."""

    weight_bytes: int
    kv_bytes_per_token: int
    workspace_bytes: int

    def largest_context(self, memory_bytes: int, limit: int) -> int:
        """Tokens of one sequence that fit beside the weights, at most `limit`; 0: not even one."""
        room = memory_bytes - self.weight_bytes - self.workspace_bytes
        return max(0, min(limit, room // self.kv_bytes_per_token))

    def largest_batch(self, memory_bytes: int, context_tokens: int) -> int:
        """Sequences of that many tokens that fit beside the weights."""
        room = memory_bytes - self.weight_bytes - self.workspace_bytes
        return max(0, room // (self.kv_bytes_per_token * context_tokens))


def footprint(
    split: ModelSplit,
    *,
    dtype: str,
    weights: str,
    kv: str,
    stored_bytes: int | None,
    max_batch_tokens: int = 512,
) -> Footprint:
    """`weights` is resolved (full, stored, int8, int4, fp8); `stored_bytes` are the files'."""
    return Footprint(
        weight_bytes=weight_bytes(split, dtype=dtype, weights=weights, stored_bytes=stored_bytes),
        kv_bytes_per_token=split.kv_shape.token_bytes(dtype=dtype, kv=kv),
        workspace_bytes=workspace_bytes(split, dtype=dtype, max_batch_tokens=max_batch_tokens),
    )


def weight_bytes(
    split: ModelSplit, *, dtype: str, weights: str, stored_bytes: int | None = None
) -> int:
    """All matrices in their format, vectors in float32. A stored format takes what its files do; a
    rank's part of it as much of that as it has of the numbers."""
    return _bytes_of(
        held_parameters(split), split.config, dtype=dtype, weights=weights, stored=stored_bytes
    )


def exchange_bytes(
    split: ModelSplit, *, dtype: str, weights: str, stored_bytes: int | None, num_moves: int
) -> int:
    """Beside the weights while a rank's experts of one layer change: the at most `num_moves` that
    it gains, and the layer made anew, which a GPU keeps in one piece."""
    mixture = split.config.mixture
    if mixture is None:
        return 0
    num_held, width = len(split.experts), len(split.expert_columns)
    num_gained = min(num_moves, mixture.num_experts - num_held)
    values = 3 * split.config.hidden_size * width * (num_held + num_gained)
    made = Parameters(matrices=values, ends=0, vectors=0)
    return _bytes_of(made, split.config, dtype=dtype, weights=weights, stored=stored_bytes)


def _bytes_of(
    counted: Parameters, config: DecoderConfig, *, dtype: str, weights: str, stored: int | None
) -> int:
    if weights == "stored" and stored is not None:
        return stored * counted.total // parameters(config).total
    item = ITEM_BYTES[dtype]
    if weights == "fp8":
        return counted.matrices + counted.ends * item + counted.vectors * 4
    if weights in _GROUP_BITS:
        matrices = counted.matrices * _GROUP_BITS[weights] + counted.ends * _GROUP_BITS["int8"]
        return matrices // 8 + counted.vectors * 4
    return (counted.matrices + counted.ends) * item + counted.vectors * 4


def workspace_bytes(split: ModelSplit, *, dtype: str, max_batch_tokens: int) -> int:
    """Activations of one step.

    Live at once at most: the residual (float32), a norm's output and the widest product of a layer
    with what is made of it; logits are wanted for at most one row per sequence, and for a few of
    a prompt whose own tokens are scored. Of several ranks each has its own logits and all of them;
    where each has sequences of its own, the rank that samples has these once more, in their order.
    All else is then of its part of `max_batch_tokens`, but what arrives for routed experts.
    """
    config, rows = split.config, LOGIT_ROWS + SCORED_ROWS
    own_tokens, item = _own_tokens(split, max_batch_tokens), ITEM_BYTES[dtype]
    widest = own_tokens * max(3 * _widest_feed_forward(split), _widest_attention(split))
    if split.row_sharing is RowSharing.OWN:
        widest = max(widest, _arriving_values(split, max_batch_tokens, own_tokens))
    per_token = (4 + 2 * item) * config.hidden_size
    return own_tokens * per_token + widest * item + rows * _logit_values(split) * 4


def _own_tokens(split: ModelSplit, max_batch_tokens: int) -> int:
    """Of a step, those whose sequences are this rank's."""
    num_homes = split.rank.world_size if split.row_sharing is RowSharing.OWN else 1
    return max(1, max_batch_tokens // num_homes)


def _arriving_values(split: ModelSplit, max_batch_tokens: int, own_tokens: int) -> int:
    """At once, where rows are exchanged: those of all ranks, each once, what the experts here make
    of them, and the branches of the own rows that come back. A GPU measures what more it takes."""
    mixture, hidden = split.config.mixture, split.config.hidden_size
    if mixture is None:
        return 0
    num_chosen = mixture.num_experts_per_token
    made = 3 * num_chosen * len(split.expert_columns)
    return max_batch_tokens * (hidden + made) + own_tokens * num_chosen * hidden


def _logit_values(split: ModelSplit) -> int:
    """Of one row."""
    whole = split.config.vocab_size
    if split.row_sharing is RowSharing.OWN:
        return 3 * whole
    return whole if split.rank.is_alone else whole + split.vocab_height


def parameters(config: DecoderConfig) -> Parameters:
    """All numbers of the checkpoint."""
    return held_parameters(ModelSplit(config=config))


@functools.lru_cache(maxsize=64)
def held_parameters(split: ModelSplit) -> Parameters:
    """A rank's numbers, tensor by tensor; rows that fill up its vocabulary are among them."""
    counted = {"matrices": 0, "ends": 0, "vectors": 0}
    for (kind, tensor), count in _kinds(split.config).items():
        counted[kind] += count * _num_held(split, tensor)
    return Parameters(**counted)


def _num_held(split: ModelSplit, tensor: StoredTensor) -> int:
    if tensor.share is Share.TOKENS:
        return split.vocab_height * tensor.shape[1]
    part = split.part_of(tensor)
    return 0 if part is None else part.num_values(tensor.shape)


@functools.lru_cache(maxsize=16)
def _kinds(config: DecoderConfig) -> Counter[tuple[str, StoredTensor]]:
    """How many tensors of each kind there are: layers are alike, and DeepSeek-V3 has 45000."""
    tensors = expected_tensors(config).items()
    return Counter((_kind(name, tensor), tensor) for name, tensor in tensors)


def _kind(name: str, tensor: StoredTensor) -> str:
    """The field of Parameters that counts a tensor."""
    if tensor.share is Share.TOKENS:
        return "ends"
    return "matrices" if tensor.is_matrix and not is_router(name) else "vectors"


def _widest_attention(split: ModelSplit) -> int:
    """Values of a token at once: queries, keys and values, and what attention gives. A latent's
    queries come as heads and again in latent space."""
    config, heads = split.config, len(split.heads)
    if config.latent is not None:
        return heads * (config.head_dim + 2 * config.latent.row_dim)
    return (heads + len(split.kv_heads)) * 2 * config.head_dim


def _widest_feed_forward(split: ModelSplit) -> int:
    """Intermediate values of one of its own tokens at once; all the experts that it chose may be of
    one rank."""
    mixture, dense = split.config.mixture, len(split.columns(split.config.intermediate_size))
    if mixture is None:
        return dense
    shared = len(split.shared_columns)
    if split.row_sharing is RowSharing.OWN:  # routed ones have rows of all ranks
        return max(dense, shared)
    routed = mixture.num_experts_per_token * len(split.expert_columns)
    return max(dense, shared, routed)
