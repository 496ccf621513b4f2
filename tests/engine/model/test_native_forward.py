"""The decoder in one native call against the same decoder operation by operation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import engine.model.decoder
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.model.weights.decoder_weights import DecoderWeights
from kernels.cpu.team import TEAM
from kernels.dispatch.kernel_sets import REFERENCE, TORCH_CPU
from kernels.tape.kernel_set import KernelSet
from tests.engine.model import family_models
from tests.engine.model.layers.test_latent_families import GROUPS, LATENT
from tests.engine.model.tiny_llama import (
    BLOCK_SIZE,
    decoder_config,
    ragged_batch,
    random_model,
    saved_card,
    tiny_config,
)
from tests.kernels.kernel_sets import DTYPES, cpu_set
from tests.kernels.ranks import SameEverywhere

STEPS: list[list[tuple[list[int], int, list[int]]]] = [
    [([5, 7, 9, 11, 13, 2, 4], 0, [9, 1]), ([3] * 13, 0, [20, 21, 22, 23])],
    [([8], 7, [9, 1]), ([6], 13, [20, 21, 22, 23])],
    [([8], 8, [9, 1, 30]), ([1, 2, 3, 4, 5], 14, [20, 21, 22, 23, 24]), ([60, 0], 0, [40])],
]


FAMILIES: dict[str, dict[str, Any]] = {
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {},
    "MistralForCausalLM": {"sliding_window": 5},
    "Gemma3ForCausalLM": {"sliding_window": 6},
}

LAYERED: dict[str, tuple[str, dict[str, Any]]] = {
    "latents, experts and shared experts": ("DeepseekV3ForCausalLM", {**LATENT, **GROUPS}),
    "experts": ("MixtralForCausalLM", {"num_local_experts": 4}),
}


def decoder(
    folder: Path, kernels: KernelSet, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, **c: Any
) -> tuple[Decoder, KvPool]:
    model = random_model(tiny_config(**c))
    monkeypatch.setattr(engine.model.decoder, "kernels_for", lambda *_: kernels)
    layout = KvLayout.of(decoder_config(model.config), BLOCK_SIZE, dtype)
    return Decoder.load(saved_card(model, folder), dtype, "cpu"), KvPool(layout, 64, "cpu")


def last_rows(chunks: list[tuple[list[int], int, list[int]]]) -> RaggedBatch:
    batch = ragged_batch(chunks)
    return replace(batch, logit_rows=batch.query_starts[1:].long() - 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_one_call_gives_the_bits_of_the_operations_for_prompts_decodes_and_both(
    dtype: torch.dtype,
    biased: bool,
    num_threads: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TEAM, "num_threads", num_threads)
    kernels = cpu_set("native")
    family = {"attention_bias": biased, "mlp_bias": biased, "tie_word_embeddings": not biased}
    one, kv = decoder(tmp_path, kernels, dtype, monkeypatch, **family)
    many, other_kv = decoder(
        tmp_path, replace(kernels, play_natively=None), dtype, monkeypatch, **family
    )
    assert (one.num_native_calls, many.num_native_calls) == (1, 0)
    assert one.why_by_kernels == ""
    for chunks in STEPS:
        batch = last_rows(chunks)
        assert torch.equal(one.forward(batch, kv), many.forward(batch, other_kv))
    assert torch.equal(kv.tensor, other_kv.tensor)


def test_a_model_with_a_part_without_a_native_form_goes_by_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = replace(cpu_set("native"), pack_linear=REFERENCE.pack_linear)
    model, kv = decoder(tmp_path, kernels, torch.float32, monkeypatch)
    plain, plain_kv = decoder(tmp_path, REFERENCE, torch.float32, monkeypatch)
    assert (model.num_native_calls, plain.num_native_calls) == (0, 0)
    assert model.why_by_kernels == "no native form of TorchLinear"
    assert (model.has_alike_rows, plain.has_alike_rows) == (False, False)
    assert plain.why_by_kernels == "the reference kernels have no programs"
    for chunks in STEPS:
        batch = last_rows(chunks)
        expected = plain.forward(batch, plain_kv)
        torch.testing.assert_close(model.forward(batch, kv), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_norms_gates_scales_and_windows_of_families_have_a_native_form(
    family: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = cpu_set("native")
    card = family_models.saved_card(
        family_models.random_model(family, **FAMILIES[family]), tmp_path
    )
    layout = KvLayout.of(card.config, BLOCK_SIZE, dtype)
    kv, other_kv = KvPool(layout, 64, "cpu"), KvPool(layout, 64, "cpu")
    one = Decoder.load(card, dtype, "cpu")
    monkeypatch.setattr(
        engine.model.decoder, "kernels_for", lambda *_: replace(kernels, play_natively=None)
    )
    many = Decoder.load(card, dtype, "cpu")
    assert (one.num_native_calls, many.num_native_calls) == (1, 0)
    for chunks in STEPS:
        batch = last_rows(chunks)
        assert torch.equal(one.forward(batch, kv), many.forward(batch, other_kv))
    assert torch.equal(kv.tensor, other_kv.tensor)


@pytest.mark.parametrize("kv_dtype", [torch.int8, torch.float8_e4m3fn])
def test_a_quantized_pool_gives_the_same_bits_too(
    kv_dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = cpu_set("native")
    one, _ = decoder(tmp_path, kernels, torch.float32, monkeypatch)
    many, _ = decoder(tmp_path, replace(kernels, play_natively=None), torch.float32, monkeypatch)
    layout = KvLayout.of(one.config, BLOCK_SIZE, kv_dtype)
    kv, other_kv = KvPool(layout, 64, "cpu"), KvPool(layout, 64, "cpu")
    for chunks in STEPS:
        batch = last_rows(chunks)
        assert torch.equal(one.forward(batch, kv), many.forward(batch, other_kv))
    assert torch.equal(kv.tensor.view(torch.uint8), other_kv.tensor.view(torch.uint8))


@pytest.mark.parametrize("family", ["LlamaForCausalLM", *FAMILIES])
def test_ranks_stop_twice_per_layer_and_collectives_that_change_nothing_keep_the_bits(
    family: str, tmp_path: Path
) -> None:
    kernels, changes = cpu_set("native"), FAMILIES.get(family, {})
    card = family_models.saved_card(family_models.random_model(family, **changes), tmp_path)
    weights = DecoderWeights(card, torch.bfloat16, torch.device("cpu"))
    layout = KvLayout.of(card.config, BLOCK_SIZE, torch.bfloat16)
    alone, pools = Decoder(weights, kernels), [KvPool(layout, 64, "cpu") for _ in range(3)]
    ranks = SameEverywhere(2)
    natively = Decoder(weights, kernels, collective=ranks)
    by_kernels = Decoder(weights, replace(kernels, play_natively=None), collective=ranks)
    num_collectives = 2 * card.config.num_layers
    assert (alone.num_native_calls, natively.num_native_calls) == (1, 1 + num_collectives)
    for chunks in STEPS:
        batch = last_rows(chunks)
        expected = alone.forward(batch, pools[0])
        assert torch.equal(natively.forward(batch, pools[1]), expected)
        assert torch.equal(by_kernels.forward(batch, pools[2]), expected)
        hidden, first = card.config.hidden_size, ranks.reduced[:num_collectives]
        assert first == ranks.reduced[num_collectives:]
        assert set(first[:-2]) == {(len(batch.token_ids), hidden)}
        assert set(first[-2:]) == {(len(batch.logit_rows), hidden)}
        ranks.reduced.clear()


@pytest.mark.parametrize("family", LAYERED)
def test_latents_and_mixtures_are_summed_over_the_ranks_too(family: str, tmp_path: Path) -> None:
    architecture, changes = LAYERED[family]
    card = family_models.saved_card(family_models.random_model(architecture, **changes), tmp_path)
    weights = DecoderWeights(card, torch.float32, torch.device("cpu"))
    layout = KvLayout.of(card.config, BLOCK_SIZE, torch.float32)
    ranks, pools = SameEverywhere(2), [KvPool(layout, 64, "cpu") for _ in range(2)]
    with torch.inference_mode():
        alone, shared = Decoder(weights, TORCH_CPU), Decoder(weights, TORCH_CPU, collective=ranks)
    batch = last_rows(STEPS[0])
    assert torch.equal(shared.forward(batch, pools[1]), alone.forward(batch, pools[0]))
    assert len(ranks.reduced) == 2 * card.config.num_layers
