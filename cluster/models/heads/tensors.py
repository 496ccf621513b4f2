"""The tensors of an EAGLE-3 head: their names, and the shapes that its config implies."""

from __future__ import annotations

from typing import Final

from cluster.models.heads.card import HeadsConfig

FUSE: Final = "fc.weight"
FINAL_NORM: Final = "norm.weight"
LM_HEAD: Final = "lm_head.weight"
EMBEDDING: Final = "embed_tokens.weight"
"""Often missing: it is the target's then."""
TOKEN_OFFSETS: Final = "d2t"
"""Of each token that may be guessed: what its id is less than the target's."""
IS_GUESSED: Final = "t2d"
"""Of each token of the target; says nothing that the offsets do not."""


def needed_shapes(config: HeadsConfig, target_width: int) -> dict[str, tuple[int, ...]]:
    """Tensors that must be there. `target_width`: of the target's states, side by side."""
    layer, prefix = config.layer, config.layer_prefix
    hidden, inner = layer.hidden_size, layer.intermediate_size
    heads = layer.num_heads * layer.head_dim
    kv_heads = layer.num_kv_heads * layer.head_dim
    shapes: dict[str, tuple[int, ...]] = {FUSE: (hidden, target_width)}
    shapes |= {
        f"{prefix}{name}.weight": shape
        for name, shape in {
            "self_attn.q_proj": (heads, 2 * hidden),
            "self_attn.k_proj": (kv_heads, 2 * hidden),
            "self_attn.v_proj": (kv_heads, 2 * hidden),
            "self_attn.o_proj": (hidden, heads),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
            "input_layernorm": (hidden,),
            "hidden_norm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }.items()
    }
    shapes |= {FINAL_NORM: (hidden,), LM_HEAD: (config.draft_vocab_size, hidden)}
    if config.draft_vocab_size != layer.vocab_size:
        shapes[TOKEN_OFFSETS] = (config.draft_vocab_size,)
    return shapes


def optional_shapes(config: HeadsConfig) -> dict[str, tuple[int, ...]]:
    """Those that may be there."""
    vocab_size = config.layer.vocab_size
    return {
        EMBEDDING: (vocab_size, config.layer.hidden_size),
        TOKEN_OFFSETS: (config.draft_vocab_size,),
        IS_GUESSED: (vocab_size,),
    }
