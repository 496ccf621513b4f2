"""Real layers: texts with a draft model are those without, to the last token: alone and at once,
after a handoff, and in a group of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import transformers
from msgspec import structs

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard, QuantizationConfig, QuantMethod
from cluster.sampling import SamplingParams
from cluster.sharding import Rank, RowSharing
from engine.contract.commands import (
    ChoiceToken,
    Deliver,
    GenerateRequest,
    PrefillMode,
    ReleaseExport,
    Seed,
    Submit,
)
from engine.contract.spec import DraftSpec, EngineSpec
from engine.contract.weight_format import WeightFormat
from engine.offline.queue import Completion, collect, generate
from engine.runner import gpu_formats
from engine.runner.draft_model import DraftSize
from engine.runner.model_runner import DrawingRunner, Replica
from engine.runner.portion import WHOLE_REPLICA, Portion
from engine.runner.replica import load_replica
from engine.step.engine import Engine
from kernels.triton.gpu import HOPPER, Gpu
from tests.engine.model.parity import random_prompts
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.engine.runner.ranks.groups import running
from tests.engine.step.engine_scenario import ROOT
from tests.engine.step.guessing import TickingClock
from tests.engine.step.model_guessing import drafter_of, num_misses
from tests.kernels.gpus import AMPERE
from tests.kernels.kernel_sets import cpu_set

LAYERS, FEWER_LAYERS = 4, 3
VOCAB = 61
PROMPTS = random_prompts((30, 17, 5, 44), VOCAB)
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.8, "top_p": 0.95},
    "penalties": {"temperature": 0.0, "repetition_penalty": 1.2, "logprobs": 2},
}


@dataclass(frozen=True)
class Cards:
    target: ModelCard
    draft: ModelCard


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Cards:
    """A random model of 4 layers, the last of which says little, and one of its first 3."""
    cpu_set("native")
    whole = random_model(tiny_config(num_hidden_layers=LAYERS, max_position_embeddings=512))
    last = whole.model.layers[FEWER_LAYERS]
    for matrix in (last.self_attn.o_proj, last.mlp.down_proj):
        matrix.weight.data *= 0.2
    part = transformers.LlamaForCausalLM(
        tiny_config(num_hidden_layers=FEWER_LAYERS, max_position_embeddings=512)
    ).eval()
    missing, _ = part.load_state_dict(whole.state_dict(), strict=False)
    assert missing == []
    folder = tmp_path_factory.mktemp("models")
    return Cards(saved_card(whole, folder / "whole"), saved_card(part, folder / "part"))


def spec_of(cards: Cards, draft: ModelCard | None, **options: Any) -> EngineSpec:
    given: dict[str, Any] = {
        "device": "cpu",
        "num_threads": 2,
        "block_size_tokens": 4,
        "kv_memory_bytes": 1 << 21,
        "speculation": "off" if draft is None else str(draft.metadata_path),
    }
    return EngineSpec(
        card=cards.target,
        dtype="float32",
        role=Role.DECODE,
        worker_id="tested",
        incarnation="only",
        options=EngineOptions(**(given | options)),
        drafter=None if draft is None else DraftSpec(card=draft, dtype="float32"),
    )


def engine_of(spec: EngineSpec) -> tuple[Engine, Replica]:
    replica = load_replica(spec, lambda phase, fraction: None)
    return eager_engine(replica, spec.options), replica


def eager_engine(replica: Replica, options: EngineOptions) -> Engine:
    """By its clock, and by what it takes its draft model for, drafts pay."""
    if replica.draft is not None:
        replica = replace(replica, draft=replace(replica.draft, share=0.01))
    return Engine(replica, options, clock=TickingClock())


def request(name: str, prompt: list[int], seed: int = 0, **sampling: Any) -> GenerateRequest:
    given = {"max_tokens": 50, "ignore_eos": True, "seed": seed} | sampling
    return GenerateRequest(
        request_id=name,
        token_ids=prompt,
        sampling=SamplingParams(**given),
        cache_root=ROOT,
        timeout_ms=math.inf,
    )


def sixteen(**sampling: Any) -> list[GenerateRequest]:
    return [request(str(i), PROMPTS[i % 4][i // 4 :], i, **sampling) for i in range(16)]


def num_tried(completions: list[Completion]) -> int:
    return sum(done.ended.draft_tokens for done in completions if done.ended is not None)


def num_kept(completions: list[Completion]) -> int:
    return sum(done.ended.accepted_draft_tokens for done in completions if done.ended is not None)


@pytest.mark.parametrize("kind", SAMPLING)
def test_sixteen_answers_at_once_are_those_without(kind: str, cards: Cards) -> None:
    plain, _ = engine_of(spec_of(cards, None))
    drafting, _ = engine_of(spec_of(cards, cards.draft))
    expected = generate(plain, sixteen(**SAMPLING[kind]))
    for _ in range(2):  # the second time over cached blocks
        found = generate(drafting, sixteen(**SAMPLING[kind]))
        assert [done.tokens for done in found] == [done.tokens for done in expected]
        assert num_tried(found) > num_kept(found) > 0
        assert drafting.check_invariants() == []


@pytest.mark.parametrize("kind", SAMPLING)
def test_a_model_that_drafts_for_itself_is_always_right(kind: str, cards: Cards) -> None:
    """Whatever was read for it, in whatever parts, has the bits of the target's own KV."""
    plain, _ = engine_of(spec_of(cards, None))
    drafting, _ = engine_of(spec_of(cards, cards.target))
    for body in (request("a", PROMPTS[0], 3, **SAMPLING[kind]), *sixteen(**SAMPLING[kind])):
        [expected], [found] = generate(plain, [body]), generate(drafting, [body])
        assert found.tokens == expected.tokens
        assert num_kept([found]) > 20
    assert num_misses(drafting) == 0


def test_smollm2_drafts_for_itself_without_a_mistake() -> None:
    """In its default precision, over blocks of both pools at once."""
    card = ModelStore().resolve("smollm2")
    cards = Cards(card, card)
    tokens = random_prompts((150, 33, 7), 40_000)
    asked = [request(str(i), prompt, i, max_tokens=24) for i, prompt in enumerate(tokens)]
    options = {"block_size_tokens": 16, "kv_memory_bytes": 64 << 20, "max_context_tokens": 512}
    spec = structs.replace(spec_of(cards, card, **options), dtype="bfloat16")
    spec = structs.replace(spec, drafter=DraftSpec(card=card, dtype="bfloat16"))
    drafting, replica = engine_of(spec)
    found = generate(drafting, asked)
    plain = Engine(replica, replace(spec.options, speculation="off"))
    assert [done.tokens for done in found] == [done.tokens for done in generate(plain, asked)]
    assert num_kept(found) > 20
    assert num_misses(drafting) == 0


def test_a_prompt_prefilled_elsewhere_is_read_for_the_draft_here(cards: Cards) -> None:
    source, source_replica = engine_of(spec_of(cards, None, max_batch_tokens=6))
    target, target_replica = engine_of(spec_of(cards, cards.target))
    for name, prompt in zip("abc", PROMPTS, strict=False):
        body = request(name, prompt, temperature=0.8)
        found = handed_over(body, source, source_replica, target, target_replica)
        [expected] = generate(source, [body])
        assert found.token_ids() == expected.token_ids()
        assert num_kept([found]) > 20
    assert num_misses(target) == 0
    assert target.check_invariants() == []


def handed_over(
    body: GenerateRequest,
    source: Engine,
    source_replica: Replica,
    target: Engine,
    target_replica: Replica,
    on_the_way: Callable[[Replica], None] | None = None,
) -> Completion:
    """Computed by the source, whose blocks are copied; decoded by the target. `on_the_way`: what
    becomes of the target's blocks before it decodes."""
    completions = {body.request_id: Completion()}
    target.apply(Submit(structs.replace(body, mode=PrefillMode.REMOTE)))
    [reserved] = target.step().reserved
    source.apply(Submit(structs.replace(body, mode=PrefillMode.EXPORT)))
    while source.has_work:
        frame = source.step()
        for prefilled in frame.prefilled:
            for index, block in enumerate(prefilled.span.block_ids, prefilled.span.first_index):
                target_replica.kv[reserved.block_ids[index]] = source_replica.kv[block]
                target.apply(Deliver(body.request_id, index, 1))
        if on_the_way is not None:
            on_the_way(target_replica)
        if frame.tokens:
            tokens = [ChoiceToken(event.choice, event.token) for event in frame.tokens]
            target.apply(Seed(body.request_id, tokens))
    source.apply(ReleaseExport(body.request_id))
    source.step()
    while completions[body.request_id].ended is None:
        collect(target.step(), completions)
    return completions[body.request_id]


def test_the_first_of_two_ranks_has_the_draft_model(cards: Cards) -> None:
    """The others are told of the rows, and of nothing else."""
    options = {"tensor_parallel_size": 2}
    asked = sixteen(temperature=0.8)
    with running(spec_of(cards, None, **options)) as replica:
        expected = generate(Engine(replica, spec_of(cards, None, **options).options), asked)
    spec = spec_of(cards, cards.draft, **options)
    with running(spec) as replica:
        assert replica.draft is not None
        found = generate(eager_engine(replica, spec.options), asked)
    assert [done.token_ids() for done in found] == [done.token_ids() for done in expected]
    assert num_tried(found) > num_kept(found) > 0


def test_memory_is_planned_for_both(cards: Cards) -> None:
    _, plain = engine_of(spec_of(cards, None))
    drafting = load_replica(spec_of(cards, cards.draft), lambda phase, fraction: None)
    per_block = 1 + FEWER_LAYERS / LAYERS
    assert len(drafting.kv) == int(len(plain.kv) / per_block)
    assert drafting.draft is not None
    assert drafting.draft.share == pytest.approx(FEWER_LAYERS / LAYERS, abs=0.1)
    assert "load draft model" in drafting.load_phases_ms


def test_a_draft_model_is_refused_where_rows_are_not_alike(cards: Cards) -> None:
    spec = spec_of(cards, cards.draft, data_parallel_attention=True, tensor_parallel_size=2)
    portion = Portion(rank=Rank(0, 2), row_sharing=RowSharing.OWN)
    with pytest.raises(ConfigError, match="its ranks have sequences of their own"):
        DraftSize.of(spec, portion, torch.device("cpu"))
    shared = Portion(rank=Rank(0, 2))
    with pytest.raises(ConfigError, match="shared by several GPUs"):
        DraftSize.of(spec_of(cards, cards.draft), shared, torch.device("cuda"))


@pytest.mark.parametrize(
    ("gpu", "form"), [(AMPERE, WeightFormat.FULL), (HOPPER, WeightFormat.STORED)]
)
def test_a_gpu_has_the_weights_of_a_draft_model_in_a_form_of_its_own(
    cards: Cards, gpu: Gpu, form: WeightFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_formats, "gpu_of", lambda device: gpu)
    floats = QuantizationConfig(method=QuantMethod.FP8, bits=8, group=None, is_float=True)
    spec = spec_of(cards, cards.draft)
    card = replace(cards.draft, quantization=floats)
    draft = DraftSpec(card=card, dtype="float32", weights=WeightFormat.STORED)
    spec = structs.replace(spec, drafter=draft)
    size = DraftSize.of(spec, WHOLE_REPLICA, torch.device("cuda"))
    assert size is not None
    assert size.weights is form


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("cuda_graphs", [True, False])
def test_a_gpu_drafts_by_a_model_that_is_named(cards: Cards, cuda_graphs: bool) -> None:
    """Its target once more, so that guesses are right but where a row has other bits. Never run
    yet."""
    spec = spec_of(cards, cards.target, device="cuda", cuda_graphs=cuda_graphs)
    engine, replica = engine_of(spec)
    assert replica.draft is not None
    assert isinstance(replica.draft.runner, DrawingRunner) is cuda_graphs
    kinds = [SAMPLING["greedy"], SAMPLING["seeded"], SAMPLING["penalties"]]
    asked = [
        request(f"{i}", prompt, i, max_tokens=40, **kinds[i % 3])
        for i, prompt in enumerate(PROMPTS)
    ]
    found = generate(engine, asked)
    assert [len(done.token_ids()) for done in found] == [40] * len(asked)
    assert num_kept(found) > 0.8 * num_tried(found) > 0
    assert drafter_of(engine)._care._num_failures == 0
