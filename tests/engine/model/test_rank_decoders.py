"""A group of ranks against one decoder of the same weights: every family, in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import engine.model.decoder
from cluster.errors import ConfigError
from cluster.models.card import ModelCard
from cluster.models.tensor_part import WHOLE, TensorPart
from cluster.models.tensors import expected_shapes
from cluster.sharding import Rank
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.rank_place import RankPlace
from engine.model.weights import decoder_weights
from engine.model.weights.checkpoint import Checkpoint
from engine.model.weights.decoder_weights import DecoderWeights
from engine.model.weights.open_checkpoint import open_checkpoint
from kernels.dispatch.kernel_sets import REFERENCE
from kernels.weights import Weight
from tests.engine.model import test_families
from tests.engine.model.family_models import VOCAB, random_model, saved_card
from tests.engine.model.layers import test_latent_families, test_mixture_families
from tests.engine.model.layers.test_latent_families import GROUPS, deepseek
from tests.engine.model.parity import generate, random_prompts
from tests.engine.model.rank_decoders import (
    Answers,
    answers_of_ranks,
    assert_one_decoder,
    rank_split,
)
from tests.engine.model.tiny_llama import BLOCK_SIZE, ragged_batch
from tests.kernels.kernel_sets import DTYPES, cpu_set
from tests.kernels.ranks import SameEverywhere, ThreadRank, run_ranks

PROMPTS = random_prompts((31, 14, 1), VOCAB)
MIXTURES: dict[str, tuple[str, dict[str, Any]]] = test_mixture_families.FAMILIES
LATENTS: dict[str, tuple[str, dict[str, Any]]] = test_latent_families.FAMILIES
SHARED = {"n_shared_experts": 2}


Model = tuple[ModelCard, Answers]
"""And what one decoder answers."""


def dense(family: str, folder: Path) -> ModelCard:
    architecture, changes = test_families.FAMILIES[family]
    return saved_card(random_model(architecture, **changes), folder)


def mixture(family: str, folder: Path) -> ModelCard:
    architecture, changes = MIXTURES[family]
    return saved_card(random_model(architecture, **changes), folder)


def latent(family: str, folder: Path) -> ModelCard:
    architecture, changes = LATENTS[family]
    return saved_card(deepseek(architecture, **{**changes, **SHARED}), folder)


MakeModel = Callable[[Callable[[str, Path], ModelCard], str], Model]


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Of a family; made once."""

    @cache
    def made(make: Callable[[str, Path], ModelCard], family: str) -> Model:
        card = make(family, tmp_path_factory.mktemp("model"))
        return card, generate(Decoder.load(card, torch.float32, "cpu"), PROMPTS, 13)

    return made


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("family", test_families.FAMILIES)
def test_ranks_of_a_dense_model_give_the_tokens_and_logits_of_one_decoder(
    family: str, num_ranks: int, model_of: MakeModel
) -> None:
    """Two KV heads: of four ranks, two hold each of them."""
    card, alone = model_of(dense, family)
    assert_one_decoder(answers_of_ranks(card, PROMPTS, num_ranks), alone)


def test_three_ranks_of_uneven_heads_columns_and_vocabulary(tmp_path: Path) -> None:
    model = random_model(
        "LlamaForCausalLM",
        hidden_size=80,
        num_attention_heads=10,
        num_key_value_heads=5,
        intermediate_size=100,
        tie_word_embeddings=True,
        attention_bias=True,
        mlp_bias=True,
    )
    card = saved_card(model, tmp_path)
    alone = generate(Decoder.load(card, torch.float32, "cpu"), PROMPTS, 13)
    assert_one_decoder(answers_of_ranks(card, PROMPTS, 3), alone)


@pytest.mark.parametrize(
    ("num_ranks", "expert_parallel_size"), [(2, None), (4, None), (4, 2), (2, 1), (4, 1)]
)
@pytest.mark.parametrize("family", MIXTURES)
def test_ranks_of_a_mixture_share_its_experts_or_their_columns(
    family: str, num_ranks: int, expert_parallel_size: int | None, model_of: MakeModel
) -> None:
    card, alone = model_of(mixture, family)
    ranks = answers_of_ranks(card, PROMPTS, num_ranks, expert_parallel_size=expert_parallel_size)
    assert_one_decoder(ranks, alone)


@pytest.mark.parametrize(("num_ranks", "expert_parallel_size"), [(2, None), (4, None), (4, 2)])
@pytest.mark.parametrize("family", LATENTS)
def test_ranks_of_latent_attention_have_heads_of_their_own_and_the_same_latents(
    family: str, num_ranks: int, expert_parallel_size: int | None, model_of: MakeModel
) -> None:
    card, alone = model_of(latent, family)
    ranks = answers_of_ranks(card, PROMPTS, num_ranks, expert_parallel_size=expert_parallel_size)
    assert_one_decoder(ranks, alone)


def test_a_group_of_one_rank_has_the_bits_of_a_decoder_without_a_group(tmp_path: Path) -> None:
    card = saved_card(random_model("Qwen3ForCausalLM"), tmp_path)
    (ranks,) = answers_of_ranks(card, PROMPTS, 1)
    alone = generate(Decoder.load(card, torch.float32, "cpu"), PROMPTS, 13)
    for (_, logits), (_, expected) in zip(ranks, alone, strict=True):
        assert torch.equal(logits, expected)


@pytest.mark.parametrize("family", ["qwen 3", "gemma 3"])
def test_the_reference_kernels_give_the_same(family: str, tmp_path: Path) -> None:
    architecture, changes = test_families.FAMILIES[family]
    card = saved_card(random_model(architecture, **changes), tmp_path)
    alone = generate(Decoder.load(card, torch.float32, "cpu"), PROMPTS, 13)

    def work(index: int, collective: ThreadRank) -> Any:
        split = rank_split(card, Rank(index, 2))
        weights = DecoderWeights(card, torch.float32, torch.device("cpu"), split=split)
        with torch.inference_mode():
            decoder = Decoder(weights, REFERENCE, collective=collective)
        return generate(decoder, PROMPTS, 13)

    assert_one_decoder(run_ranks(2, work), alone)


def test_ranks_hold_a_model_together_and_no_more(tmp_path: Path) -> None:
    """But for the rows of zeros that fill up the last rank's vocabulary: 97 tokens are 2 x 49."""
    card = saved_card(random_model("LlamaForCausalLM"), tmp_path)
    device = torch.device("cpu")

    def work(index: int, collective: ThreadRank) -> int:
        split = rank_split(card, Rank(index, 2))
        weights = DecoderWeights(card, torch.float32, device, split=split)
        return Decoder(weights, REFERENCE, collective=collective).num_bytes

    whole = Decoder(DecoderWeights(card, torch.float32, device), REFERENCE).num_bytes
    assert sum(run_ranks(2, work)) == whole + 2 * 64 * 4


class Noted:
    """A `Checkpoint` that notes what is read of it."""

    def __init__(self, stored: Checkpoint) -> None:
        self._stored = stored
        self.parts: dict[str, TensorPart] = {}

    def names(self) -> frozenset[str]:
        return self._stored.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._stored.shape(name)

    def inputs_per_scale(self, name: str) -> int | None:
        return self._stored.inputs_per_scale(name)

    def read(self, name: str, part: TensorPart = WHOLE) -> torch.Tensor:
        self.parts[name] = part
        return self._stored.read(name, part)

    def read_weight(self, name: str, part: TensorPart = WHOLE) -> Weight:
        self.parts[name] = part
        return self._stored.read_weight(name, part)


@pytest.mark.parametrize("index", range(4))
def test_a_rank_reads_the_parts_that_the_split_names_and_nothing_else(
    index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = saved_card(deepseek("DeepseekV3ForCausalLM", **GROUPS, **SHARED), tmp_path)
    noted = Noted(open_checkpoint(card))
    monkeypatch.setattr(decoder_weights, "open_checkpoint", lambda _: noted)
    split = rank_split(card, Rank(index, 4))
    weights = DecoderWeights(card, torch.float32, torch.device("cpu"), split=split)
    Decoder(weights, REFERENCE, collective=SameEverywhere(4))
    parts = {name: split.part(name) for name in expected_shapes(card.config)}
    assert noted.parts == {name: part for name, part in parts.items() if part is not None}


def test_a_native_step_of_a_rank_stops_at_the_embedding_and_twice_per_layer(
    tmp_path: Path,
) -> None:
    card = saved_card(random_model("LlamaForCausalLM"), tmp_path)
    if Decoder.load(card, torch.float32, "cpu").num_native_calls == 0:
        pytest.skip("no native kernels on this machine")

    def work(index: int, collective: ThreadRank) -> int:
        place = RankPlace(split=rank_split(card, Rank(index, 2)), collective=collective)
        return Decoder.load(card, torch.float32, "cpu", place=place).num_native_calls

    assert run_ranks(2, work) == [2 + 2 * card.config.num_layers] * 2


def test_logits_are_gathered_for_the_one_rank_that_wants_them(tmp_path: Path) -> None:
    """All others may go on: 97 tokens are 2 x 49, of which one is cut off."""
    card = saved_card(random_model("LlamaForCausalLM"), tmp_path)
    batch = ragged_batch([(PROMPTS[0], 0, [0, 1, 2, 3, 4, 5, 6, 7])])

    def work(index: int, collective: ThreadRank) -> list[torch.Tensor]:
        found = []
        for wanted in (None, 1):
            split = rank_split(card, Rank(index, 2))
            place = RankPlace(split=split, collective=collective, logits_at=wanted)
            decoder = Decoder.load(card, torch.float32, "cpu", place=place)
            pool = KvPool(KvLayout.of_part(split, BLOCK_SIZE, torch.float32), 8, "cpu")
            found.append(decoder.forward(batch, pool))
        return found

    (everywhere, nothing), (_, wanted) = run_ranks(2, work)
    assert torch.equal(wanted, everywhere) and wanted.shape == (len(PROMPTS[0]), VOCAB)
    assert len(nothing) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", [WeightFormat.FULL, WeightFormat.INT8])
def test_native_steps_of_ranks_have_the_bits_of_the_same_kernels_one_by_one(
    form: WeightFormat, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedding, of which each rank has a part, is plain or in groups."""
    kernels, card = cpu_set("native"), saved_card(random_model("Qwen2ForCausalLM"), tmp_path)
    natively = answers_of_ranks(card, PROMPTS, 2, dtype=dtype, weights=form)
    by_kernels = replace(kernels, play_natively=None)
    monkeypatch.setattr(engine.model.decoder, "kernels_for", lambda *_: by_kernels)
    one_by_one = answers_of_ranks(card, PROMPTS, 2, dtype=dtype, weights=form)
    for native, expected in zip(natively, one_by_one, strict=True):
        for (_, logits), (_, others) in zip(native, expected, strict=True):
            assert torch.equal(logits, others)


def test_more_ranks_than_heads_are_refused_before_a_weight_is_read(tmp_path: Path) -> None:
    card = saved_card(random_model("LlamaForCausalLM"), tmp_path)
    with pytest.raises(ConfigError, match="4 heads cannot be shared by 8 ranks; use at most 4"):
        rank_split(card, Rank(0, 8))


def test_a_rank_without_its_group_is_an_error(tmp_path: Path) -> None:
    card = saved_card(random_model("LlamaForCausalLM"), tmp_path)
    with pytest.raises(ValueError, match="rank 1 of 2 in a collective of 1"):
        place = RankPlace(split=rank_split(card, Rank(1, 2)))
        Decoder.load(card, torch.float32, "cpu", place=place)
