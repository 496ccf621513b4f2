"""Quantized matrices on several ranks against the same matrices on one.

What kernels dequantize is the same number at every rank: only sums are in another order. Native
products round activations to bytes per 32 inputs, and keep more of the spans with a row's largest
values, which among a rank's columns may be others: there the logits are another rounding of the
exact ones, as near to them as one rank's are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

import engine.model.decoder
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.models.gguf.header import read_gguf_header
from cluster.models.gguf.quantization import quantization_of_gguf
from engine.contract.weight_format import WeightFormat
from engine.model.decoder import Decoder
from kernels.dispatch.kernel_sets import TORCH_CPU
from tests.engine.model.parity import generate, random_prompts
from tests.engine.model.rank_decoders import Answers, answers_of_ranks, assert_one_decoder
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.engine.model.weights import quantized_files as files
from tests.engine.model.weights.test_quantized_weights import FOLDERS
from tests.engine.model.weights.test_weights import write_gguf

PROMPTS = random_prompts((31, 14, 1), 61)
FULL, STORED = WeightFormat.FULL, WeightFormat.STORED
KINDS = ["Q4_0", "Q4_1", "Q5_1", "Q8_0"]


@pytest.fixture
def dequantizing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that multiply with what a matrix stands for."""
    monkeypatch.setattr(engine.model.decoder, "kernels_for", lambda *_: TORCH_CPU)


def quantized_folder(case: str, folder: Path) -> ModelCard:
    quantization, store = FOLDERS[case]
    model = random_model(tiny_config(tie_word_embeddings=False, intermediate_size=128))
    files.write_folder(model, folder / "quantized", quantization, store)
    return ModelStore(folder / "home").show(str(folder / "quantized"))


def quantized_gguf(kind: str, folder: Path) -> ModelCard:
    path = folder / "m.gguf"
    card = write_gguf(random_model(tiny_config()), path, gguf.GGMLQuantizationType[kind])
    return replace(card, quantization=quantization_of_gguf(read_gguf_header(path)))


def of_one(card: ModelCard, form: WeightFormat) -> Answers:
    return generate(Decoder.load(card, torch.float32, "cpu", weights=form), PROMPTS, 13)


def check_same(card: ModelCard, form: WeightFormat, num_ranks: int = 2) -> None:
    ranks = answers_of_ranks(card, PROMPTS, num_ranks, weights=form)
    assert_one_decoder(ranks, of_one(card, form))


def check_near(card: ModelCard, form: WeightFormat, exact: Answers) -> None:
    """All ranks have the same bits; their mean distance from the exact logits of the prompts is at
    most a quarter above one rank's. Skips where no kernel of this CPU's rounds activations: there
    one rank is exact, and ranks differ from it by the order of sums."""
    if Decoder.load(card, torch.float32, "cpu", weights=form).num_native_calls == 0:
        pytest.skip("no native kernels on this machine")
    first, second = answers_of_ranks(card, PROMPTS, 2, weights=form)
    alone = of_one(card, form)
    errors = {"ranks": 0.0, "one": 0.0}
    for at, prompt in enumerate(PROMPTS):
        assert torch.equal(first[at][1], second[at][1])
        truth = exact[at][1][: len(prompt)]
        for name, answers in (("ranks", first), ("one", alone)):
            error = (answers[at][1][: len(prompt)] - truth).abs()
            errors[name] += float(error.sum())
    assert errors["ranks"] <= 1.25 * errors["one"]


@pytest.mark.usefixtures("dequantizing")
@pytest.mark.parametrize("form", [STORED, FULL])
@pytest.mark.parametrize("case", FOLDERS)
def test_ranks_of_a_quantized_folder_give_the_tokens_of_one(
    case: str, form: WeightFormat, tmp_path: Path
) -> None:
    check_same(quantized_folder(case, tmp_path), form)


@pytest.mark.usefixtures("dequantizing")
@pytest.mark.parametrize("form", [STORED, FULL])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_of_gguf_blocks_give_the_tokens_of_one(
    kind: str, form: WeightFormat, tmp_path: Path
) -> None:
    check_same(quantized_gguf(kind, tmp_path), form)


@pytest.mark.usefixtures("dequantizing")
@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("form", [WeightFormat.INT8, WeightFormat.INT4])
def test_weights_that_are_quantized_on_load_have_the_same_groups_on_ranks(
    form: WeightFormat, num_ranks: int, tmp_path: Path
) -> None:
    """96 inner columns are three groups: of two ranks one has two of them."""
    model = random_model(tiny_config(num_key_value_heads=3))
    check_same(saved_card(model, tmp_path), form, num_ranks)


@pytest.mark.parametrize("case", ["gptq", "awq", "compressed tensors, 4 bits"])
def test_native_products_of_a_quantized_folder_are_as_exact_on_ranks(
    case: str, tmp_path: Path
) -> None:
    card = quantized_folder(case, tmp_path)
    check_near(card, STORED, of_one(card, FULL))


@pytest.mark.parametrize("kind", KINDS)
def test_native_products_of_gguf_blocks_are_as_exact_on_ranks(kind: str, tmp_path: Path) -> None:
    card = quantized_gguf(kind, tmp_path)
    check_near(card, STORED, of_one(card, FULL))


@pytest.mark.parametrize("changes", [{}, {"num_key_value_heads": 6}])
def test_8_bit_floats_that_are_made_on_load_are_as_exact_on_ranks(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """A scale per output and rank, over fewer columns: no coarser."""
    card = saved_card(random_model(tiny_config(**changes)), tmp_path)
    check_near(card, WeightFormat.FP8, of_one(card, FULL))
