"""DeepSeek V2 and V3 against transformers on the same random weights, in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cluster.errors import BadCheckpoint
from engine.memory.kv_pool import KvLayout
from engine.model.decoder import Decoder
from engine.model.weights.decoder_weights import DecoderWeights
from engine.model.weights.latent_weights import rotated_rows_apart
from kernels.dispatch.kernel_sets import REFERENCE
from tests.engine.model.family_models import VOCAB, random_model, saved_card
from tests.engine.model.parity import assert_same, generate, random_prompts, reference

PROMPT_LENGTHS = (70, 23, 1)
CHUNKS = (512, 13)
V2, V3 = "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "head_dim": 8,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 24,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 48,
    "first_k_dense_replace": 1,
}
GROUPS = {"n_group": 4, "topk_group": 2}
V2_GROUPS = {**GROUPS, "topk_method": "group_limited_greedy", "routed_scaling_factor": 1.7}
YARN = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "mscale": 0.7,
        "mscale_all_dim": 0.9,
    }
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "v2": (V2, V2_GROUPS),
    "v2 lite": (V2, {"q_lora_rank": None}),
    "v2, yarn": (V2, {**V2_GROUPS, **YARN}),
    "v3": (V3, GROUPS),
    "v3, queries without a rank": (V3, {**GROUPS, "q_lora_rank": None}),
    "v3, yarn": (V3, {**GROUPS, **YARN}),
    "v3, rotated halves": (V3, {**GROUPS, "rope_interleave": False}),
    "v3, one group, plain weights": (V3, {"n_group": 1, "topk_group": 1, "norm_topk_prob": False}),
}


def deepseek(architecture: str, **changes: Any) -> Any:
    """The bias for the choice, which transformers begins with zeros, is random."""
    model = random_model(architecture, **{**LATENT, **changes})
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.uniform_(-0.5, 0.5)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_greedy_tokens_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    architecture, changes = FAMILIES[family]
    model = deepseek(architecture, **changes)
    decoder = Decoder.load(saved_card(model, tmp_path), torch.float32, "cpu")
    prompts = random_prompts(PROMPT_LENGTHS, VOCAB)
    expected = reference(model, prompts)
    for chunk_tokens in CHUNKS:
        assert_same(generate(decoder, prompts, chunk_tokens), expected)


@pytest.mark.parametrize("family", ["v2 lite", "v3"])
def test_the_reference_kernels_give_the_same(family: str, tmp_path: Path) -> None:
    architecture, changes = FAMILIES[family]
    model = deepseek(architecture, **changes)
    weights = DecoderWeights(saved_card(model, tmp_path), torch.float32, torch.device("cpu"))
    with torch.inference_mode():
        decoder = Decoder(weights, REFERENCE)
    prompts = random_prompts((20, 3), VOCAB)
    assert_same(generate(decoder, prompts, 7), reference(model, prompts))


def test_bfloat16_is_near_to_float32(tmp_path: Path) -> None:
    """As near as transformers' own, twice over: the absorbed form rounds in other places."""
    model = deepseek(V3, **GROUPS)
    decoder = Decoder.load(saved_card(model, tmp_path), torch.bfloat16, "cpu")
    prompts = random_prompts((60,), VOCAB)
    tokens = torch.tensor(prompts)
    with torch.inference_mode():
        exact = model(tokens).logits[0]
        theirs = model.to(torch.bfloat16)(tokens).logits[0].float()
    ours = generate(decoder, prompts, 512)[0][1][: len(prompts[0])]
    assert (ours - exact).abs().median() <= 2 * (theirs - exact).abs().median()


def test_a_token_keeps_one_row_of_latent_and_shared_key(tmp_path: Path) -> None:
    config = saved_card(deepseek(V3, **GROUPS), tmp_path).config
    layout = KvLayout.of(config, 16, torch.bfloat16)
    assert layout.block_shape == (4, 1, 1, 16, 32 + 8)


def test_a_loaded_model_holds_what_its_checkpoint_has(tmp_path: Path) -> None:
    model = deepseek(V2, **V2_GROUPS)
    weights = DecoderWeights(saved_card(model, tmp_path), torch.float32, torch.device("cpu"))
    decoder = Decoder(weights, REFERENCE)
    matrices = sum(p.nbytes for name, p in model.named_parameters() if "norm" not in name)
    assert decoder.num_bytes == matrices


def test_layers_for_further_tokens_are_left_unread_and_others_refused(tmp_path: Path) -> None:
    """num_nextn_predict_layers is 1 and there are 4 layers: layer 4 may be there, 5 may not."""
    card = saved_card(deepseek(V3, **GROUPS), tmp_path)
    (path,) = card.weight_files
    tensors = load_file(path)
    save_file({**tensors, "model.layers.4.eh_proj.weight": torch.zeros(2, 2)}, path)
    DecoderWeights(card, torch.float32, torch.device("cpu"))
    save_file({**tensors, "model.layers.5.eh_proj.weight": torch.zeros(2, 2)}, path)
    with pytest.raises(BadCheckpoint, match=r"model\.layers\.5\.eh_proj"):
        DecoderWeights(card, torch.float32, torch.device("cpu"))


def test_neighbours_that_are_rotated_together_come_halves_apart() -> None:
    assert rotated_rows_apart(2, 1, 4).tolist() == [0, 1, 3, 2, 4, 5, 6, 8, 7, 9]
