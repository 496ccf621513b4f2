"""The tensors of multi-head latent attention: their names and shapes, and by what ranks share them.
Heads are shared; a latent, and what leads to it, is the same at every rank."""

from __future__ import annotations

from cluster.models.card import DecoderConfig, LatentConfig
from cluster.models.stored_tensor import Share, StoredTensor

QUERY, QUERY_DOWN, QUERY_UP = "q_proj.weight", "q_a_proj.weight", "q_b_proj.weight"
QUERY_NORM, KV_NORM = "q_a_layernorm.weight", "kv_a_layernorm.weight"
KV_DOWN, KV_UP, OUTPUT = "kv_a_proj_with_mqa.weight", "kv_b_proj.weight", "o_proj.weight"


def latent_tensors(config: DecoderConfig, latent: LatentConfig) -> dict[str, StoredTensor]:
    """Those of an attention, without their prefix."""
    hidden, heads = config.hidden_size, config.num_heads
    query, up = heads * config.head_dim, heads * (latent.nope_dim + latent.value_dim)
    output = (hidden, heads * latent.value_dim)
    tensors = {
        KV_DOWN: StoredTensor(shape=(latent.row_dim, hidden)),
        KV_NORM: StoredTensor(shape=(latent.kv_rank,)),
        KV_UP: StoredTensor(shape=(up, latent.kv_rank), share=Share.HEADS),
        OUTPUT: StoredTensor(shape=output, share=Share.HEADS, is_summed=True),
    }
    if latent.query_rank is None:
        return tensors | {QUERY: StoredTensor(shape=(query, hidden), share=Share.HEADS)}
    rank = latent.query_rank
    return tensors | {
        QUERY_DOWN: StoredTensor(shape=(rank, hidden)),
        QUERY_NORM: StoredTensor(shape=(rank,)),
        QUERY_UP: StoredTensor(shape=(query, rank), share=Share.HEADS),
    }
