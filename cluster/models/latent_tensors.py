"""The tensors of multi-head latent attention: their names and shapes."""

from __future__ import annotations

from cluster.models.card import DecoderConfig, LatentConfig

QUERY, QUERY_DOWN, QUERY_UP = "q_proj.weight", "q_a_proj.weight", "q_b_proj.weight"
QUERY_NORM, KV_NORM = "q_a_layernorm.weight", "kv_a_layernorm.weight"
KV_DOWN, KV_UP, OUTPUT = "kv_a_proj_with_mqa.weight", "kv_b_proj.weight", "o_proj.weight"


def latent_shapes(config: DecoderConfig, latent: LatentConfig) -> dict[str, tuple[int, ...]]:
    """The tensors of an attention, without their prefix."""
    hidden, heads = config.hidden_size, config.num_heads
    query, up = heads * config.head_dim, heads * (latent.nope_dim + latent.value_dim)
    shapes: dict[str, tuple[int, ...]] = {
        KV_DOWN: (latent.row_dim, hidden),
        KV_NORM: (latent.kv_rank,),
        KV_UP: (up, latent.kv_rank),
        OUTPUT: (hidden, heads * latent.value_dim),
    }
    if latent.query_rank is None:
        return shapes | {QUERY: (query, hidden)}
    rank = latent.query_rank
    return shapes | {QUERY_DOWN: (rank, hidden), QUERY_NORM: (rank,), QUERY_UP: (query, rank)}
