"""What GGUF calls the tensors of `cluster/models/tensors.py`."""

from __future__ import annotations

from cluster.models.tensors import EMBEDDING, FINAL_NORM, LM_HEAD, ROPE_DIVISORS, layer_prefix

_TOP = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": FINAL_NORM,
    "output.weight": LM_HEAD,
    "rope_freqs.weight": ROPE_DIVISORS,
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_POST_NORMED = {
    **_LAYER,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def from_gguf_name(name: str, *, has_post_norms: bool = False) -> str:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight; unknown names unchanged."""
    modules = _POST_NORMED if has_post_norms else _LAYER
    if name in _TOP:
        return _TOP[name]
    prefix, _, rest = name.partition(".")
    index, _, leaf = rest.partition(".")
    module, _, kind = leaf.partition(".")
    if prefix == "blk" and module in modules:
        return f"{layer_prefix(int(index))}{modules[module]}.{kind}"
    return name


def to_gguf_name(name: str, *, has_post_norms: bool = False) -> str:
    """The other way round, of a tensor of a dense decoder."""
    modules = _POST_NORMED if has_post_norms else _LAYER
    for theirs, ours in _TOP.items():
        if ours == name:
            return theirs
    index, _, leaf = name.removeprefix("model.layers.").partition(".")
    module, _, kind = leaf.rpartition(".")
    theirs = next(theirs for theirs, ours in modules.items() if ours == module)
    return f"blk.{index}.{theirs}.{kind}"
