"""Checkpoints: what is read equals what transformers reads, and damage is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from cluster.errors import BadCheckpoint
from cluster.models.card import CheckpointFormat, ModelCard
from engine.model.weights.decoder_weights import DecoderWeights
from engine.model.weights.dequantize import dequantize
from tests.engine.model.tiny_llama import card_of, random_model, saved_card, tiny_config

CPU = torch.device("cpu")
_GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    if not name.startswith("model.layers."):
        return _GGUF_NAMES[name]
    _, _, index, rest = name.split(".", 3)
    module, _, kind = rest.rpartition(".")
    return f"blk.{index}.{_GGUF_NAMES[module]}.{kind}"


def halves_together(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """The order of llama.cpp: rows i and i + head_dim / 2 become neighbours."""
    split = rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)


def write_gguf(
    model: transformers.LlamaForCausalLM, path: Path, quantization: gguf.GGMLQuantizationType
) -> ModelCard:
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        values = tensor.numpy()
        if ".q_proj." in name:
            values = halves_together(values, config.num_attention_heads)
        if ".k_proj." in name:
            values = halves_together(values, config.num_key_value_heads)
        kind = quantization if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        packed = gguf.quants.quantize(values, kind)
        writer.add_tensor(gguf_name(name), packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return card_of(config, (path,), path, CheckpointFormat.GGUF, "llama")


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1", "BF16"])
def test_gguf_values_are_the_quantized_ones_in_the_order_of_hugging_face(
    kind: str, tmp_path: Path
) -> None:
    model = random_model(tiny_config())
    quantization = gguf.GGMLQuantizationType[kind]
    card = write_gguf(model, tmp_path / "m.gguf", quantization)
    weights = DecoderWeights(card, torch.float32, CPU)
    state = model.state_dict()

    def rounded(name: str) -> torch.Tensor:
        packed = gguf.quants.quantize(state[name].numpy(), quantization)
        return torch.from_numpy(gguf.quants.dequantize(packed, quantization).copy())

    prefix = "model.layers.1.self_attn."
    expected = torch.cat([rounded(f"{prefix}{p}_proj.weight") for p in "qkv"])
    layer = weights.layer(1)
    assert torch.equal(layer.attention.qkv, expected)
    assert torch.equal(layer.feed_forward.down, rounded("model.layers.1.mlp.down_proj.weight"))
    assert torch.equal(layer.input_norm, state["model.layers.1.input_layernorm.weight"])
    assert torch.equal(weights.embedding(), rounded("model.embed_tokens.weight"))
    assert weights.lm_head() is None


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q5_0"])
def test_dequantized_values_are_those_of_the_gguf_package(kind: str) -> None:
    quantization = gguf.GGMLQuantizationType[kind]
    values = np.random.default_rng(0).normal(size=(64, 96)).astype(np.float32)
    packed = gguf.quants.quantize(values, quantization)
    ours = dequantize(torch.from_numpy(packed.view(np.uint8).reshape(-1).copy()), kind)
    expected = gguf.quants.dequantize(packed, quantization)
    assert np.array_equal(ours.view(64, 96).numpy(), expected)


def test_safetensors_values_are_those_of_the_model(tmp_path: Path) -> None:
    model = random_model(tiny_config(tie_word_embeddings=False, mlp_bias=True))
    weights = DecoderWeights(saved_card(model, tmp_path), torch.float32, CPU)
    state = model.state_dict()
    layer = weights.layer(2)
    gate, up = (state[f"model.layers.2.mlp.{name}_proj.bias"] for name in ("gate", "up"))
    assert layer.feed_forward.gate_up_bias is not None
    assert torch.equal(layer.feed_forward.gate_up_bias, torch.cat((gate, up)))
    assert layer.attention.qkv_bias is None
    head = weights.lm_head()
    assert head is not None
    assert torch.equal(head, state["lm_head.weight"])


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    card = saved_card(model, tmp_path, max_shard_size="100KB")
    assert len(card.weight_files) > 1
    weights = DecoderWeights(card, torch.bfloat16, CPU)
    expected = model.state_dict()["model.layers.2.mlp.down_proj.weight"].bfloat16()
    assert torch.equal(weights.layer(2).feed_forward.down, expected)


def damaged(tmp_path: Path, change: dict[str, torch.Tensor | None]) -> ModelCard:
    card = saved_card(random_model(tiny_config()), tmp_path)
    tensors = load_file(card.weight_files[0])
    for name, tensor in change.items():
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    save_file(tensors, card.weight_files[0])
    return card


@pytest.mark.parametrize(
    ("name", "tensor", "says"),
    [
        ("model.layers.1.mlp.up_proj.weight", None, "lacks model.layers.1.mlp.up_proj.weight"),
        ("model.norm.weight", torch.ones(5), r"model.norm.weight has shape \(5,\)"),
        ("model.layers.0.self_attn.q_norm.weight", torch.ones(5), "does not use, such as .*q_norm"),
        ("model.layers.3.mlp.up_proj.weight", torch.ones(2, 2), "does not use, such as .*layers.3"),
    ],
)
def test_a_wrong_set_of_tensors_is_refused_by_name(
    name: str, tensor: torch.Tensor | None, says: str, tmp_path: Path
) -> None:
    with pytest.raises(BadCheckpoint, match=says):
        DecoderWeights(damaged(tmp_path, {name: tensor}), torch.float32, CPU)


def test_a_repeated_head_of_a_tied_model_is_no_error(tmp_path: Path) -> None:
    card = damaged(tmp_path, {"lm_head.weight": torch.ones(61, 96)})
    assert DecoderWeights(card, torch.float32, CPU).lm_head() is None


@pytest.mark.parametrize("keep", [0.0, 0.0001, 0.02, 0.5, 0.99])
@pytest.mark.parametrize("format", list(CheckpointFormat))
def test_a_truncated_file_is_a_bad_checkpoint(
    format: CheckpointFormat, keep: float, tmp_path: Path
) -> None:
    model = random_model(tiny_config())
    if format is CheckpointFormat.GGUF:
        card = write_gguf(model, tmp_path / "m.gguf", gguf.GGMLQuantizationType.Q8_0)
    else:
        card = saved_card(model, tmp_path)
    path = card.weight_files[0]
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(BadCheckpoint, match="(fetch|download) .*again|not a GGUF file"):
        DecoderWeights(card, torch.float32, CPU)


@pytest.mark.parametrize("format", list(CheckpointFormat))
def test_a_missing_file_is_a_bad_checkpoint(format: CheckpointFormat, tmp_path: Path) -> None:
    card = saved_card(random_model(tiny_config()), tmp_path)
    card = replace(card, format=format, weight_files=(tmp_path / "absent",))
    with pytest.raises(BadCheckpoint, match="absent"):
        DecoderWeights(card, torch.float32, CPU)
