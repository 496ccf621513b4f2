"""An EAGLE-3 head against its arithmetic in plain torch, over the states of a model of
transformers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers

from cluster.errors import BadCheckpoint, UnsupportedModel
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.eagle3_head import Eagle3Head
from engine.model.weights.heads_weights import read_heads
from tests.engine.model.tiny_eagle import (
    LAYERS_READ,
    Tensors,
    eagle_config,
    heads_card,
    random_tensors,
    saved_heads,
)
from tests.engine.model.tiny_llama import (
    BLOCK_SIZE,
    ragged_batch,
    random_model,
    saved_card,
    tiny_config,
)

LAYERS = 5
TOLERANCE = 2e-4
"""Sums of a hundred products in another order, through four products, at values around 10."""


@pytest.fixture(scope="module")
def target() -> transformers.LlamaForCausalLM:
    return random_model(tiny_config(num_hidden_layers=LAYERS, max_position_embeddings=512))


def states_of(target: transformers.LlamaForCausalLM, token_ids: list[int]) -> torch.Tensor:
    """float32 [num_tokens, width]: what comes into the layers that are read."""
    with torch.inference_mode():
        found = target(torch.tensor([token_ids]), output_hidden_states=True).hidden_states
    return torch.cat([found[layer][0] for layer in LAYERS_READ], dim=1)


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * (x.pow(2).mean(dim=-1, keepdim=True) + eps).rsqrt() * weight


def rotated(x: torch.Tensor, theta: float) -> torch.Tensor:
    """[num_tokens, heads, size], each at its place."""
    size = x.shape[-1]
    angles = torch.outer(
        torch.arange(len(x)).float(), 1.0 / theta ** (torch.arange(0, size, 2).float() / size)
    )
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def plainly(
    tensors: Tensors, config: dict[str, Any], embedded: torch.Tensor, hidden: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [n, draft vocabulary] and hidden [n, hidden] of pairs from a text's beginning on."""
    layer = {k.removeprefix("midlayer."): v for k, v in tensors.items()}
    eps, size = config["rms_norm_eps"], config["head_dim"]
    state = norm(hidden, layer["hidden_norm.weight"], eps)
    residual = state if config.get("norm_before_residual") else hidden
    x = torch.cat((norm(embedded, layer["input_layernorm.weight"], eps), state), dim=1)
    q, k, v = (
        (x @ layer[f"self_attn.{name}_proj.weight"].t()).view(len(x), -1, size) for name in "qkv"
    )
    q, k = rotated(q, config["rope_theta"]), rotated(k, config["rope_theta"])
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    attended = F.scaled_dot_product_attention(
        *(t.transpose(0, 1)[None] for t in (q, k, v)), is_causal=True
    )[0].transpose(0, 1)
    residual = residual + attended.reshape(len(x), -1) @ layer["self_attn.o_proj.weight"].t()
    x = norm(residual, layer["post_attention_layernorm.weight"], eps)
    gate, up = (x @ layer[f"mlp.{name}_proj.weight"].t() for name in ("gate", "up"))
    residual = residual + (F.silu(gate) * up) @ layer["mlp.down_proj.weight"].t()
    return norm(residual, layer["norm.weight"], eps) @ layer["lm_head.weight"].t(), residual


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_before_residual": True, "num_key_value_heads": 1},
        {"draft_vocab_size": 23, "intermediate_size": 64},
    ],
    ids=["plain", "normed first, one KV head", "fewer tokens"],
)
@pytest.mark.parametrize("chunk", [4, 64])
def test_states_and_guesses_are_those_of_plain_torch(
    chunk: int, changes: dict[str, Any], target: transformers.LlamaForCausalLM, tmp_path: Path
) -> None:
    """Read in chunks over blocks that lie apart; then one guess after the other."""
    card = saved_card(target, tmp_path / "target")
    config = eagle_config(target.config, **changes)
    tensors = random_tensors(config)
    heads = heads_card(saved_heads(tensors, config, tmp_path / "eagle"))
    decoder = Decoder.load(card, torch.float32, "cpu", states_of=LAYERS_READ)
    width = len(LAYERS_READ) * card.config.hidden_size
    weights = read_heads(heads, torch.float32, target_width=width)
    shape = replace(heads.config, layer=replace(heads.config.layer, max_context_tokens=512))
    head = Eagle3Head(shape, weights, decoder.kernels, decoder.embedding)

    token_ids = torch.randint(0, 61, (19,), generator=torch.Generator().manual_seed(1)).tolist()
    table = [3, 0, 7, 2, 5, 1, 9, 8]
    pool = KvPool(KvLayout.of(card.config, BLOCK_SIZE, torch.float32), 10, "cpu")
    states = list[torch.Tensor]()
    for start in range(0, len(token_ids), chunk):
        part = token_ids[start : start + chunk]
        decoder.forward(ragged_batch([(part, start, table)]), pool)
        states.append(decoder.states())
    expected_states = states_of(target, token_ids)
    torch.testing.assert_close(torch.cat(states), expected_states, atol=TOLERANCE, rtol=1e-4)

    kv = KvPool(KvLayout.of(heads.config.layer, BLOCK_SIZE, torch.float32), 10, "cpu")
    hidden, known = head.fused(torch.cat(states)[:-1]), token_ids[1:]
    found = list[torch.Tensor]()
    for start in range(0, len(known), chunk):
        part = known[start : start + chunk]
        output = head.forward(
            ragged_batch([(part, start, table)]), hidden[start : start + chunk], kv
        )
        assert output is not None
        found.append(output.logits)
    after, guesses = output.hidden[-1:], [11, 7, 30]
    for at, guess in enumerate(guesses):
        output = head.forward(ragged_batch([([guess], len(known) + at, table)]), after, kv)
        assert output is not None
        found.append(output.logits)
        after = output.hidden

    embedded = target.get_input_embeddings()(torch.tensor(known + guesses)).detach()
    said = torch.cat((expected_states[:-1] @ tensors["fc.weight"].t(), torch.zeros(3, 96)))
    for at in range(3):  # each guess reads what the head said before it
        _, residual = plainly(tensors, config, embedded, said)
        said[len(known) + at] = residual[len(known) + at - 1]
    expected, _ = plainly(tensors, config, embedded, said)
    if "d2t" in tensors:
        ids = tensors["d2t"] + torch.arange(23)
        wide = torch.full((len(expected), 61), -torch.inf)
        wide[:, ids] = expected
        expected = wide
    torch.testing.assert_close(torch.cat(found), expected, atol=TOLERANCE, rtol=1e-3)


def broken(name: str, tensors: Tensors) -> str:
    """Breaks the checkpoint; returns what is to be said of it."""
    lacks, prefix = name.removeprefix("lacks "), "midlayer."
    if lacks in tensors:
        del tensors[lacks]
        return f"lacks {lacks}"
    if name == "extra":
        tensors["midlayer.self_attn.q_proj.bias"] = torch.zeros(96)
        return "midlayer.self_attn.q_proj.bias"
    if name == "shape":
        tensors[f"{prefix}mlp.up_proj.weight"] = torch.zeros(32, 95)
        return r"mlp.up_proj.weight of the head has shape \(32, 95\)"
    if name == "kind":
        tensors["norm.weight"] = torch.zeros(96, dtype=torch.int64)
        return "norm.weight of the head is torch.int64"
    if name == "embedding":
        tensors["embed_tokens.weight"] = torch.zeros(60, 96)
        return "embed_tokens.weight of the head has shape"
    tensors["d2t"] = tensors["d2t"] + (60 if name == "beyond" else -torch.arange(23))
    return "d2t of the head leads to "


@pytest.mark.parametrize(
    "name",
    ["lacks fc.weight", "lacks lm_head.weight", "lacks d2t", "lacks midlayer.hidden_norm.weight"]
    + ["extra", "shape", "kind", "embedding", "beyond", "twice"],
)
def test_tensors_that_do_not_fit_are_refused_by_name(
    name: str, target: transformers.LlamaForCausalLM, tmp_path: Path
) -> None:
    config = eagle_config(target.config, draft_vocab_size=23)
    tensors = random_tensors(config)
    words = broken(name, tensors)
    card = heads_card(saved_heads(tensors, config, tmp_path / "eagle"))
    with pytest.raises(BadCheckpoint, match=words):
        read_heads(card, torch.float32, target_width=3 * 96)


def test_pickled_weights_are_not_read(
    target: transformers.LlamaForCausalLM, tmp_path: Path
) -> None:
    config = eagle_config(target.config)
    folder = saved_heads(random_tensors(config), config, tmp_path / "eagle")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UnsupportedModel, match="only safetensors"):
        heads_card(folder)
