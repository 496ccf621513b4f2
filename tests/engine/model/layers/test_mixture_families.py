"""Mixtures of experts against transformers on the same random weights, in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.model.decoder import Decoder
from engine.model.weights.decoder_weights import DecoderWeights
from engine.model.weights.mixtral_names import common_name
from engine.model.weights.mixture_weights import ExpertWeights, MixtureWeights
from kernels.dispatch.kernel_sets import REFERENCE
from tests.engine.model.family_models import VOCAB, random_model, saved_card
from tests.engine.model.parity import assert_same, generate, random_prompts, reference

PROMPT_LENGTHS = (70, 23, 1)
CHUNKS = (512, 13)
MIXTRAL, QWEN3 = "MixtralForCausalLM", "Qwen3MoeForCausalLM"
QWEN3_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": (MIXTRAL, {"num_local_experts": 4}),
    "mixtral with a window": (MIXTRAL, {"num_local_experts": 4, "sliding_window": 9}),
    "qwen 3 moe": (QWEN3, {**QWEN3_EXPERTS, "norm_topk_prob": True}),
    "qwen 3 moe with dense layers": (
        QWEN3,
        {**QWEN3_EXPERTS, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_greedy_tokens_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    architecture, changes = FAMILIES[family]
    model = random_model(architecture, **changes)
    decoder = Decoder.load(saved_card(model, tmp_path), torch.float32, "cpu")
    prompts = random_prompts(PROMPT_LENGTHS, VOCAB)
    expected = reference(model, prompts)
    for chunk_tokens in CHUNKS:
        assert_same(generate(decoder, prompts, chunk_tokens), expected)


@pytest.mark.parametrize("architecture", [MIXTRAL, QWEN3])
def test_the_reference_kernels_give_the_same(architecture: str, tmp_path: Path) -> None:
    model = random_model(architecture, num_local_experts=4, num_experts_per_tok=2)
    weights = DecoderWeights(saved_card(model, tmp_path), torch.float32, torch.device("cpu"))
    with torch.inference_mode():
        decoder = Decoder(weights, REFERENCE)
    prompts = random_prompts((20, 3), VOCAB)
    assert_same(generate(decoder, prompts, 7), reference(model, prompts))


def test_bfloat16_is_near_to_float32(tmp_path: Path) -> None:
    """As near as transformers' own; a row whose router was almost even may go elsewhere."""
    model = random_model(MIXTRAL, num_local_experts=4)
    decoder = Decoder.load(saved_card(model, tmp_path), torch.bfloat16, "cpu")
    prompts = random_prompts((60,), VOCAB)
    tokens = torch.tensor(prompts)
    with torch.inference_mode():
        exact = model(tokens).logits[0]
        theirs = model.to(torch.bfloat16)(tokens).logits[0].float()
    ours = generate(decoder, prompts, 512)[0][1][: len(prompts[0])]
    assert (ours - exact).abs().median() <= 1.1 * (theirs - exact).abs().median()


def test_a_loaded_mixture_holds_what_its_checkpoint_has(tmp_path: Path) -> None:
    model = random_model(MIXTRAL, num_local_experts=4)
    weights = DecoderWeights(saved_card(model, tmp_path), torch.float32, torch.device("cpu"))
    decoder = Decoder(weights, REFERENCE)
    matrices = sum(p.nbytes for name, p in model.named_parameters() if "norm" not in name)
    assert decoder.num_bytes == matrices


def test_experts_are_read_one_at_a_time_when_they_are_asked_for(tmp_path: Path) -> None:
    model = random_model(QWEN3, **QWEN3_EXPERTS)
    weights = DecoderWeights(saved_card(model, tmp_path), torch.float32, torch.device("cpu"))
    mixture = weights.layer(1).feed_forward
    assert isinstance(mixture, MixtureWeights)
    experts = model.model.layers[1].mlp.experts
    routed = mixture.routed
    assert len(routed.gate_up) == len(routed.down) == 8
    for index in range(8):
        assert torch.equal(routed.gate_up[index], experts.gate_up_proj[index])
        assert torch.equal(routed.down[index], experts.down_proj[index])
    assert routed.down[3] is not routed.down[3]


def test_expert_weights_are_read_once_each_in_order() -> None:
    asked: list[int] = []

    def read(index: int) -> torch.Tensor:
        asked.append(index)
        return torch.zeros(1, 1)

    weights = ExpertWeights(read, 3)
    assert asked == []
    assert len(list(weights)) == 3
    assert asked == [0, 1, 2]
    with pytest.raises(IndexError):
        weights[3]


@pytest.mark.parametrize(
    ("stored", "common"),
    [
        ("block_sparse_moe.gate.weight", "mlp.gate.weight"),
        ("block_sparse_moe.experts.11.w1.weight", "mlp.experts.11.gate_proj.weight"),
        ("block_sparse_moe.experts.0.w2.qweight", "mlp.experts.0.down_proj.qweight"),
        ("block_sparse_moe.experts.7.w3.weight", "mlp.experts.7.up_proj.weight"),
        ("self_attn.q_proj.weight", "self_attn.q_proj.weight"),
    ],
)
def test_mixtrals_names_become_the_common_ones(stored: str, common: str) -> None:
    prefix = "model.layers.31."
    assert common_name(prefix + stored) == prefix + common
