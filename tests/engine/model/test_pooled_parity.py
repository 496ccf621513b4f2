"""Embeddings and scores of the whole engine over real decoders against transformers, in float32,
and against the arithmetic of sentence-transformers, written out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cluster.engine_options import EngineOptions
from cluster.errors import BadCheckpoint
from cluster.identity import Role
from cluster.models.card import ModelCard
from cluster.models.hf.pooling import pooling_of_folder
from cluster.models.pooling import Pooling, PoolingKind
from cluster.sampling import SamplingParams
from cluster.sharding import Rank
from engine.contract.commands import GenerateRequest, PrefillMode, Submit
from engine.contract.spec import EngineSpec
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.pooled_head import PooledHead
from engine.model.rank_place import RankPlace
from engine.runner.replica import load_replica
from engine.step.engine import Engine
from tests.engine.model.family_models import VOCAB, random_model, saved_card
from tests.engine.model.folder_card import folder_card
from tests.engine.model.rank_decoders import rank_split
from tests.engine.model.tiny_llama import BLOCK_SIZE, ragged_batch
from tests.engine.step.engine_scenario import ROOT
from tests.kernels.ranks import ThreadRank, run_ranks

CLOSE = {"rtol": 1e-4, "atol": 2e-5}
"""float32 sums in another order, of values that are at most 1."""
LENGTHS = (1, 3, 16, 17, 40, 64)
LAST = Pooling(kind=PoolingKind.LAST, generates=True)
MEAN = Pooling(kind=PoolingKind.MEAN, generates=True)


def prompts() -> list[list[int]]:
    """Some begin alike: what the first has left in the cache the next one finds."""
    generator = torch.Generator().manual_seed(7)
    shared = torch.randint(3, VOCAB, (16,), generator=generator).tolist()
    tails = [torch.randint(3, VOCAB, (n,), generator=generator).tolist() for n in LENGTHS]
    return [*tails, *(shared + tail for tail in tails[:4])]


def engine_of(card: ModelCard, pooling: Pooling | None, dtype: str = "float32") -> Engine:
    """Of steps of 24 tokens: longer prompts come in chunks."""
    spec = EngineSpec(
        card=card,
        dtype=dtype,
        role=Role.PREFILL,
        worker_id="tested",
        incarnation="only",
        pooling=pooling,
        options=EngineOptions(
            device="cpu", block_size_tokens=8, kv_memory_bytes=4 * 2**20, max_batch_tokens=24
        ),
    )
    return Engine(load_replica(spec, lambda phase, fraction: None), spec.options)


def asked(name: str, prompt: list[int], mode: PrefillMode, **more: Any) -> GenerateRequest:
    return GenerateRequest(
        request_id=name,
        token_ids=prompt,
        sampling=SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True),
        cache_root=ROOT,
        mode=mode,
        timeout_ms=math.inf,
        **more,
    )


def pooled(
    engine: Engine, texts: list[list[int]], *, beside: bool = False, **more: Any
) -> list[torch.Tensor]:
    """All at once. `beside`: and others with them, which are answered with tokens."""
    values: dict[str, torch.Tensor] = {}
    tokens: dict[str, int] = {}
    for index, prompt in enumerate(texts):
        engine.apply(Submit(asked(str(index), prompt, PrefillMode.POOL, **more)))
        if beside:
            engine.apply(Submit(asked(f"text {index}", prompt, PrefillMode.LOCAL)))
    while not engine.is_idle:
        frame = engine.step()
        assert not any(end.error_code for end in frame.ended), frame.ended
        for each in frame.pooled:
            values[each.request_id] = torch.from_numpy(np.frombuffer(each.values, "<f4").copy())
        for event in frame.tokens:
            tokens[event.request_id] = tokens.get(event.request_id, 0) + 1
    assert engine.check_invariants() == []
    assert tokens == ({f"text {index}": 3 for index in range(len(texts))} if beside else {})
    return [values[str(index)] for index in range(len(texts))]


@torch.inference_mode()
def by_hand(
    model: Any, prompt: list[int], pooling: Pooling, dimensions: int | None = None
) -> torch.Tensor:
    """Transformer, Pooling and Normalize of sentence-transformers, for a text without padding."""
    tokens = model.model(torch.tensor([prompt])).last_hidden_state[0]  # [num_tokens, hidden]
    vector = tokens.sum(dim=0) / len(prompt) if pooling.reads_every_row else tokens[-1]
    vector = vector[:dimensions]
    if pooling.normalizes or dimensions is not None:
        vector = torch.nn.functional.normalize(vector, dim=0)
    return vector


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize("pooling", [LAST, MEAN], ids=["last", "mean"])
def test_embeddings_in_chunks_beside_answers_and_from_the_cache_are_transformers(
    tmp_path: Path, architecture: str, pooling: Pooling
) -> None:
    model = random_model(architecture)
    engine = engine_of(saved_card(model, tmp_path), pooling)
    expected = [by_hand(model, prompt, pooling) for prompt in prompts()]
    for beside in (True, False, True):  # the second time what may come from the cache does
        torch.testing.assert_close(pooled(engine, prompts(), beside=beside), expected, **CLOSE)


def test_an_answer_is_the_same_whether_or_not_its_engine_pools(tmp_path: Path) -> None:
    card = saved_card(random_model("Qwen3ForCausalLM"), tmp_path)
    answers = []
    for pooling in (None, LAST):
        engine = engine_of(card, pooling)
        for index, prompt in enumerate(prompts()):
            engine.apply(Submit(asked(str(index), prompt, PrefillMode.LOCAL)))
        answers.append([(e.request_id, e.token) for e in _events(engine)])
    assert answers[0] == answers[1]


def _events(engine: Engine) -> list[Any]:
    events = []
    while not engine.is_idle:
        events += engine.step().tokens
    return events


@pytest.mark.parametrize("pooling", [LAST, MEAN], ids=["last", "mean"])
def test_an_embedding_that_is_cut_has_a_length_of_one_again(
    tmp_path: Path, pooling: Pooling
) -> None:
    model = random_model("Qwen3ForCausalLM")
    engine = engine_of(saved_card(model, tmp_path), replace(pooling, dimensions=()))
    expected = [by_hand(model, prompt, pooling, 10) for prompt in prompts()]
    torch.testing.assert_close(pooled(engine, prompts(), dimensions=10), expected, **CLOSE)


def test_without_a_normalize_module_an_embedding_is_as_it_was_pooled(tmp_path: Path) -> None:
    model = random_model("Qwen2ForCausalLM")
    bare = replace(LAST, normalizes=False)
    engine = engine_of(saved_card(model, tmp_path), bare)
    expected = [by_hand(model, prompt, bare) for prompt in prompts()]
    torch.testing.assert_close(pooled(engine, prompts()), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(("kind", "mode"), [("LAST", "lasttoken"), ("MEAN", "mean_tokens")])
def test_a_folder_of_sentence_transformers_says_how_it_pools_and_needs_no_head(
    tmp_path: Path, kind: str, mode: str
) -> None:
    """As Qwen3-Embedding is published: saved without its head, names without a prefix."""
    model = random_model("Qwen3ForCausalLM", tie_word_embeddings=False)
    model.model.save_pretrained(tmp_path)
    write_modules(tmp_path, f"pooling_mode_{mode}")
    card = saved_as_it_is(tmp_path)
    assert card.architecture == "Qwen3Model"
    assert card.pooling == Pooling(kind=PoolingKind[kind], generates=False)
    engine = engine_of(card, card.pooling)
    expected = [by_hand(model, prompt, card.pooling) for prompt in prompts()]
    torch.testing.assert_close(pooled(engine, prompts()), expected, **CLOSE)


def test_a_model_that_makes_no_text_says_so_to_whoever_asks_for_it(tmp_path: Path) -> None:
    random_model("Qwen3ForCausalLM").model.save_pretrained(tmp_path)
    write_modules(tmp_path, "pooling_mode_lasttoken")
    card = saved_as_it_is(tmp_path)
    engine = engine_of(card, card.pooling)
    for mode in (PrefillMode.LOCAL, PrefillMode.EXPORT):
        engine.apply(Submit(asked(mode.value, [1, 2, 3], mode)))
    ended = engine.step().ended
    assert [end.error_code for end in ended] == ["invalid_request"] * 2
    assert all("makes no text" in end.error_message for end in ended)


def test_an_engine_that_does_not_pool_says_so(tmp_path: Path) -> None:
    engine = engine_of(saved_card(random_model("LlamaForCausalLM"), tmp_path), None)
    engine.apply(Submit(asked("a", [1, 2, 3], PrefillMode.POOL)))
    (end,) = engine.step().ended
    assert end.error_code == "invalid_request" and "--pooling" in end.error_message


@pytest.mark.parametrize("activation", ["Sigmoid", "Identity"])
@pytest.mark.parametrize("family", ["Qwen3", "Qwen2", "Llama", "Mistral"])
def test_a_classification_head_of_one_label_scores_as_transformers_does(
    tmp_path: Path, family: str, activation: str
) -> None:
    model = random_model(f"{family}ForSequenceClassification", num_labels=1, pad_token_id=0)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    module = f"torch.nn.modules.linear.{activation}"
    config["sentence_transformers"] = {"activation_fn": module}
    (tmp_path / "config.json").write_text(json.dumps(config))
    card = saved_as_it_is(tmp_path)
    assert card.pooling is not None and card.pooling.kind is PoolingKind.CLASSIFIER
    with torch.inference_mode():
        logits = [model(torch.tensor([prompt])).logits[0] for prompt in prompts()]
    expected = [torch.sigmoid(row) if activation == "Sigmoid" else row for row in logits]
    found = pooled(engine_of(card, card.pooling), prompts())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_yes_against_no_is_the_softmax_over_their_two_logits(tmp_path: Path, tied: bool) -> None:
    model = random_model("Qwen3ForCausalLM", tie_word_embeddings=tied)
    pooling = Pooling(kind=PoolingKind.YES_NO, generates=True, answer_ids=(41, 17))
    engine = engine_of(saved_card(model, tmp_path), pooling)
    with torch.inference_mode():
        logits = [model(torch.tensor([prompt])).logits[0, -1] for prompt in prompts()]
    expected = [row[[41, 17]].softmax(dim=0)[:1] for row in logits]
    torch.testing.assert_close(pooled(engine, prompts(), beside=True), expected, **CLOSE)


def test_a_head_of_a_strange_shape_is_refused(tmp_path: Path) -> None:
    random_model("Qwen3ForSequenceClassification", num_labels=1).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["score.weight"] = tensors["score.weight"].repeat(2, 1)
    save_file(tensors, file)
    card = saved_as_it_is(tmp_path)
    assert card.pooling is not None
    with pytest.raises(BadCheckpoint, match=r"score\.weight of shape \(1, 64\)"):
        PooledHead.of(card, card.pooling)


def test_in_bfloat16_the_last_norm_is_not_rounded(tmp_path: Path) -> None:
    model = random_model("LlamaForCausalLM")
    engine = engine_of(saved_card(model, tmp_path), LAST, dtype="bfloat16")
    for found, prompt in zip(pooled(engine, prompts()), prompts(), strict=True):
        assert float(found @ by_hand(model, prompt, LAST)) > 0.999
        assert not torch.equal(found, found.bfloat16().float())


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_every_rank_of_a_group_has_the_whole_hidden_state(tmp_path: Path, num_ranks: int) -> None:
    model = random_model("Qwen3ForCausalLM")
    card = saved_card(model, tmp_path)
    prompt = prompts()[4]

    def work(index: int, collective: ThreadRank) -> torch.Tensor:
        split = rank_split(card, Rank(index, num_ranks))
        place = RankPlace(split=split, collective=collective, logits_at=0)
        decoder = Decoder.load(card, torch.float32, "cpu", place=place, pooling=LAST)
        pool = KvPool(KvLayout.of_part(split, BLOCK_SIZE, torch.float32), 16, "cpu")
        batch = ragged_batch([(prompt, 0, list(range(10)))])
        return decoder.forward(replace(batch, is_pooled=True), pool)

    with torch.inference_mode():
        expected = model.model(torch.tensor([prompt])).last_hidden_state[0]
    for hidden in run_ranks(num_ranks, work):
        torch.testing.assert_close(hidden, expected, rtol=2e-4, atol=3e-4)


def write_modules(folder: Path, mode: str) -> None:
    """As sentence-transformers saves them."""
    types = ["Transformer", "Pooling", "Normalize"]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{name}"}
        for at, (name, path) in enumerate(zip(types, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    flags = {"pooling_mode_cls_token": False, mode: True, "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(flags))


def saved_as_it_is(folder: Path) -> ModelCard:
    """The card of a folder that has been saved, as the model store would make it."""
    card = folder_card(folder)
    values = json.loads((folder / "config.json").read_text())
    pooling = pooling_of_folder(folder, values, card.architecture)
    config = replace(card.config, tie_word_embeddings=True)
    return replace(card, config=config, pooling=pooling)
