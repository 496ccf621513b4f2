"""A random model as the GGUF that llama.cpp's converter would write of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from cluster.models.card import CheckpointFormat, ModelCard
from cluster.models.gguf.config import decoder_of_gguf
from cluster.models.gguf.header import read_gguf_header

_MODULES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TWO_NORMS = {"post_attention_layernorm": "ffn_norm"}
_FOUR_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(model: Any, architecture: str, path: Path, **metadata: float | int | str) -> Path:
    """In float32. `metadata` is added under the architecture's prefix, dots written as "__"."""
    writer = gguf.GGUFWriter(path, architecture)
    _add_shape(writer, model.config)
    for key, value in metadata.items():
        name = f"{architecture}.{key.replace('__', '.')}"
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](name, value)
    writer.add_array("tokenizer.ggml.tokens", [f"t{i}" for i in range(model.config.vocab_size)])
    writer.add_string("tokenizer.ggml.model", "gpt2")
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        writer.add_tensor(*_converted(name, tensor.numpy(), architecture, model.config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_card(path: Path) -> ModelCard:
    """As the model store would make it, but for the tokenizer."""
    architecture, config = decoder_of_gguf(read_gguf_header(path))
    return ModelCard(
        name="tiny",
        source=str(path),
        format=CheckpointFormat.GGUF,
        weight_files=(path,),
        metadata_path=path,
        architecture=architecture,
        config=config,
        checkpoint_dtype="float32",
        weights_digest="00",
        tokenizer_digest="00",
        eos_token_ids=(),
        bos_token_id=None,
        weight_bytes=path.stat().st_size,
    )


def _add_shape(writer: gguf.GGUFWriter, config: Any) -> None:
    head_dim = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _converted(
    name: str, values: np.ndarray, architecture: str, config: Any
) -> tuple[str, np.ndarray]:
    if architecture == "gemma3" and name.endswith("norm.weight"):
        values = values + 1
    if architecture == "llama" and ".q_proj." in name:
        values = _halves_together(values, config.num_attention_heads)
    if architecture == "llama" and ".k_proj." in name:
        values = _halves_together(values, config.num_key_value_heads)
    return _gguf_name(name, _FOUR_NORMS if architecture == "gemma3" else _TWO_NORMS), values


def _gguf_name(name: str, norms: dict[str, str]) -> str:
    module, _, kind = name.rpartition(".")
    if not module.startswith("model.layers."):
        return f"{_TOP[module]}.{kind}"
    _, _, index, module = module.split(".", 3)
    return f"blk.{index}.{(_MODULES | norms)[module]}.{kind}"


def _halves_together(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows i and i + head_dim / 2 of a head become neighbours."""
    split = rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)
