"""Real layers: texts with an EAGLE-3 head are those without, to the last token: alone and at once,
after a handoff, and in a group of ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec import structs

from cluster.errors import ConfigError
from cluster.models.card import ModelCard
from cluster.models.heads.card import HeadsCard
from cluster.sharding import Rank, RowSharing
from engine.contract.spec import EngineSpec, HeadsSpec
from engine.model.load_phases import PhaseTimer, silent
from engine.offline.queue import generate
from engine.runner.cuda_runner import CudaRunner, GraphLimits
from engine.runner.draft_heads import heads_size
from engine.runner.draft_shapes import DraftShapes
from engine.runner.model_runner import Replica
from engine.runner.portion import WHOLE_REPLICA, Portion
from engine.runner.replica import finish_replica, load_part, load_replica
from engine.step.engine import Engine
from tests.engine.model.test_draft_model_texts import (
    LAYERS,
    PROMPTS,
    SAMPLING,
    Cards,
    handed_over,
    num_kept,
    num_tried,
    request,
    sixteen,
    spec_of,
)
from tests.engine.model.tiny_eagle import (
    eagle_config,
    good_tensors,
    heads_card,
    random_tensors,
    saved_heads,
)
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.engine.runner.ranks.groups import running
from tests.engine.runner.rerun_graphs import RerunGraphs
from tests.engine.step.guessing import TickingClock
from tests.engine.step.head_guessing import drafter_of
from tests.kernels.kernel_sets import cpu_set


@dataclass(frozen=True)
class Heads:
    target: ModelCard
    good: HeadsCard
    random: HeadsCard


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Heads:
    """A random model whose layers say little, a head made for it, and one that knows nothing."""
    cpu_set("native")
    target = random_model(tiny_config(num_hidden_layers=LAYERS, max_position_embeddings=512))
    for layer in target.model.layers:
        for matrix in (layer.self_attn.o_proj, layer.mlp.down_proj):
            matrix.weight.data *= 0.03
    folder = tmp_path_factory.mktemp("models")
    config = eagle_config(target.config)
    return Heads(
        target=saved_card(target, folder / "target"),
        good=heads_card(saved_heads(good_tensors(target, config), config, folder / "good")),
        random=heads_card(saved_heads(*fewer_tokens(target), folder / "random")),
    )


def fewer_tokens(
    target: transformers.LlamaForCausalLM,
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    config = eagle_config(target.config, draft_vocab_size=40, num_key_value_heads=1)
    return random_tensors(config), config


def spec(heads: Heads, head: HeadsCard | None, **options: Any) -> EngineSpec:
    made = spec_of(Cards(heads.target, heads.target), None, **options)
    if head is None:
        return made
    said = replace(made.options, speculation=head.source)
    return structs.replace(made, drafter=HeadsSpec(card=head), options=said)


def eager_engine(replica: Replica, given: EngineSpec) -> Engine:
    """By its clock, and by what it takes its head for, drafts pay."""
    if replica.heads is not None:
        replica = replace(replica, heads=replace(replica.heads, share=0.01))
    return Engine(replica, given.options, clock=TickingClock())


def engine_of(given: EngineSpec) -> tuple[Engine, Replica]:
    replica = load_replica(given, lambda phase, fraction: None)
    return eager_engine(replica, given), replica


@pytest.mark.parametrize("which", ["good", "random"])
@pytest.mark.parametrize("kind", SAMPLING)
def test_sixteen_answers_at_once_are_those_without(kind: str, which: str, heads: Heads) -> None:
    plain, _ = engine_of(spec(heads, None))
    drafting, _ = engine_of(spec(heads, getattr(heads, which)))
    expected = generate(plain, sixteen(**SAMPLING[kind]))
    tried = kept = 0
    for _ in range(2):  # the second time over cached blocks
        found = generate(drafting, sixteen(**SAMPLING[kind]))
        assert [done.tokens for done in found] == [done.tokens for done in expected]
        assert drafting.check_invariants() == []
        tried, kept = tried + num_tried(found), kept + num_kept(found)
    assert 2 * kept > tried if which == "good" else tried > kept


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", SAMPLING)
def test_an_answer_alone_is_that_without_and_takes_drafts(
    kind: str, dtype: str, heads: Heads
) -> None:
    given = structs.replace(spec(heads, None), dtype=dtype)
    plain, _ = engine_of(given)
    drafting, _ = engine_of(structs.replace(spec(heads, heads.good), dtype=dtype))
    for number, prompt in enumerate(PROMPTS):
        body = request("a", prompt, number, **SAMPLING[kind])
        [expected], [found] = generate(plain, [body]), generate(drafting, [body])
        assert found.tokens == expected.tokens
        assert num_kept([found]) > 10


def test_a_prompt_prefilled_elsewhere_is_gone_on_with_from_the_first_state_seen_here(
    heads: Heads,
) -> None:
    source, source_replica = engine_of(spec(heads, None, max_batch_tokens=6))
    target, target_replica = engine_of(spec(heads, heads.good))
    for name, prompt in zip("abc", PROMPTS, strict=False):
        body = request(name, prompt, temperature=0.8)
        found = handed_over(body, source, source_replica, target, target_replica)
        [expected] = generate(source, [body])
        assert found.token_ids() == expected.token_ids()
        assert num_kept([found]) > 10
    assert target.check_invariants() == []


def test_the_first_of_two_ranks_has_the_head(heads: Heads) -> None:
    """It has the states of all rows, and an embedding of all tokens."""
    options = {"tensor_parallel_size": 2}
    asked = sixteen(temperature=0.8)
    with running(spec(heads, None, **options)) as replica:
        expected = generate(Engine(replica, spec(heads, None, **options).options), asked)
    given = spec(heads, heads.good, **options)
    with running(given) as replica:
        assert replica.heads is not None
        found = generate(eager_engine(replica, given), asked)
    assert [done.token_ids() for done in found] == [done.token_ids() for done in expected]
    assert num_tried(found) > num_kept(found) > 0


def test_texts_are_those_without_where_steps_are_replayed_and_run_ahead(heads: Heads) -> None:
    """As on a GPU, with graphs that run their work again."""
    asked = [request(f"{i}", prompt, i, max_tokens=30) for i, prompt in enumerate(PROMPTS)]
    plain, _ = engine_of(spec(heads, None))
    expected = generate(plain, asked)
    given = spec(heads, heads.good, max_num_seqs=4)
    part = load_part(given, silent)
    part = replace(part, num_blocks=part.num_blocks - 1)  # the last one is for padding
    assert part.heads is not None
    context = part.size.context_tokens
    shapes = DraftShapes(max_num_seqs=4, max_batch_tokens=64, max_context_tokens=context)
    limits = GraphLimits(
        max_num_seqs=4,
        max_context_tokens=context,
        drafts=shapes,
        states_width=part.heads.states_width,
    )
    graphs = RerunGraphs()
    runner = CudaRunner(part.decoder, part.pool, limits=limits, backend=graphs, progress=silent)
    replica = finish_replica(given, part, runner, PhaseTimer(silent))
    engine = eager_engine(replace(replica, draft_shapes=shapes), given)
    found = generate(engine, asked)
    assert [done.token_ids() for done in found] == [done.token_ids() for done in expected]
    assert num_tried(found) > num_kept(found) > 20
    assert drafter_of(engine)._care._num_failures == 0
    assert graphs.num_replayed > 8
    assert engine.check_invariants() == []


def test_memory_is_planned_for_the_head(heads: Heads) -> None:
    _, plain = engine_of(spec(heads, None))
    drafting = load_replica(spec(heads, heads.good), lambda phase, fraction: None)
    per_block = 1 + 3 / 2 / LAYERS  # three KV heads of one layer, beside two of each
    assert len(drafting.kv) == int(len(plain.kv) / per_block)
    assert "load head" in drafting.load_phases_ms
    assert drafting.loaded.num_native_calls == plain.loaded.num_native_calls == 1


def test_a_head_is_refused_where_rows_are_not_alike(heads: Heads) -> None:
    given = spec(heads, heads.good, data_parallel_attention=True, tensor_parallel_size=2)
    portion = Portion(rank=Rank(0, 2), row_sharing=RowSharing.OWN)
    with pytest.raises(ConfigError, match="its ranks split the rows of a step"):
        heads_size(given, portion, torch.device("cpu"))
    with pytest.raises(ConfigError, match="shared by several GPUs"):
        heads_size(spec(heads, heads.good), Portion(rank=Rank(0, 2)), torch.device("cuda"))
    assert heads_size(spec(heads, heads.good), WHOLE_REPLICA, torch.device("cuda")) is not None


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("cuda_graphs", [True, False])
def test_a_gpu_drafts_by_a_head_that_is_named(heads: Heads, cuda_graphs: bool) -> None:
    """Never run yet."""
    given = spec(heads, heads.good, device="cuda", cuda_graphs=cuda_graphs)
    engine, replica = engine_of(given)
    assert replica.heads is not None
    asked = [request(f"{i}", prompt, i, max_tokens=40) for i, prompt in enumerate(PROMPTS)]
    found = generate(engine, asked)
    assert [len(done.token_ids()) for done in found] == [40] * len(asked)
    assert num_tried(found) > num_kept(found) > 0
    assert drafter_of(engine)._care._num_failures == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 62}, "it is for 62 tokens, the model has 61"),
        ({"target_hidden_size": 95}, "it is for states of 95 values, the model's have 96"),
        ({"eagle_config": {}}, r"layers \(2, 2, 1\) of a model of 4"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3]}},
            r"layers \(2, 4\) of a model of 4",
        ),
    ],
)
def test_a_head_of_another_model_is_refused_by_what_differs(
    changes: dict[str, Any], words: str, heads: Heads, tmp_path: Path
) -> None:
    config = eagle_config(tiny_config(), **changes)
    card = heads_card(saved_heads(random_tensors(config), config, tmp_path / "other"))
    given = spec(heads, card)
    with pytest.raises(ConfigError, match=words) as caught:
        load_replica(given, lambda phase, fraction: None)
    assert caught.value.param == "speculation"
