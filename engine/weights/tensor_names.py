"""The tensors of a Llama-family checkpoint: their names and the shapes that a config implies."""

from __future__ import annotations

from cluster.models.card import DecoderConfig

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"
ROPE_DIVISORS = "rope_divisors"
"""GGUF only (`rope_freqs.weight`): what each inverse frequency is divided by."""

_GGUF_TOP = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": FINAL_NORM,
    "output.weight": LM_HEAD,
    "rope_freqs.weight": ROPE_DIVISORS,
}
_GGUF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def from_gguf_name(name: str) -> str:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight; unknown names unchanged."""
    if name in _GGUF_TOP:
        return _GGUF_TOP[name]
    prefix, _, rest = name.partition(".")
    index, _, leaf = rest.partition(".")
    module, _, kind = leaf.partition(".")
    if prefix == "blk" and module in _GGUF_LAYER:
        return f"{layer_prefix(int(index))}{_GGUF_LAYER[module]}.{kind}"
    return name


def layer_prefix(index: int) -> str:
    """Of the names of one layer."""
    return f"model.layers.{index}."


def expected_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that must be there. The head is listed only when it is not tied."""
    shapes: dict[str, tuple[int, ...]] = {
        EMBEDDING: (config.vocab_size, config.hidden_size),
        FINAL_NORM: (config.hidden_size,),
    }
    if not config.tie_word_embeddings:
        shapes[LM_HEAD] = (config.vocab_size, config.hidden_size)
    for index in range(config.num_layers):
        for leaf, shape in _layer_shapes(config).items():
            shapes[layer_prefix(index) + leaf] = shape
    return shapes


def _layer_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    attention = {"q": (query, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, query)}
    mlp = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    biased = {"o"} if config.output_bias else set()
    biased |= {"q", "k", "v"} if config.attention_bias else set()
    biased |= mlp.keys() if config.mlp_bias else set()
    for block, projections in (("self_attn", attention), ("mlp", mlp)):
        for name, shape in projections.items():
            shapes[f"{block}.{name}_proj.weight"] = shape
            if name in biased:
                shapes[f"{block}.{name}_proj.bias"] = shape[:1]
    return shapes
