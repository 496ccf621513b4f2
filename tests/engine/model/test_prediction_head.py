"""DeepSeek-V3's own layer for further tokens: its arithmetic beside transformers' layer, and texts
with it, which are those without."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from cluster.errors import BadCheckpoint, ConfigError
from cluster.models.card import ModelCard
from cluster.models.heads.prediction import with_prediction_layer
from engine.contract.spec import EngineSpec, HeadsSpec
from engine.contract.weight_format import WeightFormat
from engine.memory.budget import plan_memory
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.prediction_head import Ends, PredictionHead
from engine.model.weights.prediction_weights import read_prediction_layer
from engine.offline.queue import generate
from engine.runner import optional_heads, own_layers
from engine.runner.model_runner import Replica
from engine.runner.replica import load_replica
from engine.step.engine import Engine
from tests.engine.model.parity import random_prompts
from tests.engine.model.test_draft_model_texts import (
    SAMPLING,
    Cards,
    handed_over,
    num_kept,
    num_tried,
    request,
    spec_of,
)
from tests.engine.model.test_eagle3_head import norm
from tests.engine.model.test_head_texts import eager_engine, engine_of
from tests.engine.model.tiny_llama import BLOCK_SIZE, ragged_batch
from tests.engine.model.tiny_prediction import (
    HIDDEN,
    LAYERS,
    PREFIX,
    VOCAB,
    Tensors,
    deepseek_v3,
    make_good,
    model_tensors,
    prediction_tensors,
    saved_with,
)
from tests.engine.runner.ranks.groups import running
from tests.kernels.kernel_sets import cpu_set

TOLERANCE = 1e-3
PROMPTS = random_prompts((30, 17, 5, 44), VOCAB)


@dataclass(frozen=True)
class Own:
    good: ModelCard
    random: ModelCard
    model: Any
    """Of the random one, by transformers."""
    tensors: Tensors


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Own:
    cpu_set("native")
    folder = tmp_path_factory.mktemp("models")
    model = deepseek_v3()
    tensors = prediction_tensors(model_tensors(model, folder / "plain"))
    damped = deepseek_v3(0.003)
    good = prediction_tensors(model_tensors(damped, folder / "damped"))
    make_good(good, damped)
    return Own(
        good=saved_with(damped, good, folder / "good"),
        random=saved_with(model, tensors, folder / "random"),
        model=model,
        tensors=tensors,
    )


def by_transformers(own: Own, token_ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's states behind its norm, float32 [num_tokens, hidden], and the head's logits over
    its pairs, [num_tokens - 1, vocab]: its layer has the weights of the model's last."""
    layer, tensors, eps = own.model.model.layers[-1], own.tensors, own.model.config.rms_norm_eps
    ids = torch.tensor([token_ids])
    with torch.inference_mode():
        states = own.model.model(ids).last_hidden_state[0]
        embedded = own.model.get_input_embeddings()(ids[0, 1:])
        embedded[0] = 0.0  # as vLLM has it
        parts = (
            norm(embedded, tensors[f"{PREFIX}enorm.weight"], eps),
            norm(states[:-1], tensors[f"{PREFIX}hnorm.weight"], eps),
        )
        joined = torch.cat(parts, dim=1) @ tensors[f"{PREFIX}eh_proj.weight"].t()
        places = torch.arange(len(joined))[None]
        turned = own.model.model.rotary_emb(joined[None], places)
        hidden = torch.full((len(joined), len(joined)), -torch.inf).triu(1)[None, None]
        said = layer(
            joined[None], attention_mask=hidden, position_ids=places, position_embeddings=turned
        )
        said = said[0] if isinstance(said, tuple) else said
        said = norm(said[0], tensors[f"{PREFIX}shared_head.norm.weight"], eps)
        return states, said @ tensors[f"{PREFIX}shared_head.head.weight"].t()


@pytest.mark.parametrize("chunk", [4, 64])
def test_states_and_guesses_are_those_of_transformers_layer(chunk: int, own: Own) -> None:
    card, full = own.random, WeightFormat.FULL
    decoder = Decoder.load(card, torch.float32, "cpu", states_of=(LAYERS,))
    weights = read_prediction_layer(card, torch.float32, torch.device("cpu"), full)
    assert weights.lm_head is not None
    pack = decoder.kernels.pack_linear
    ends = Ends(decoder.embedding, pack(weights.lm_head))
    head = PredictionHead(with_prediction_layer(card.config), weights, decoder.kernels, ends)
    token_ids = torch.randint(0, VOCAB, (19,), generator=torch.Generator().manual_seed(1)).tolist()
    table, layout = [3, 0, 7, 2, 5, 1], KvLayout.of(card.config, BLOCK_SIZE, torch.float32)
    pool, states = KvPool(layout, 10, "cpu"), list[torch.Tensor]()
    for start in range(0, len(token_ids), chunk):
        batch = ragged_batch([(token_ids[start : start + chunk], start, table)])
        decoder.forward(replace(batch, logit_rows=batch.logit_rows[-1:]), pool)
        states.append(decoder.states())
    expected_states, expected = by_transformers(own, token_ids)
    torch.testing.assert_close(torch.cat(states), expected_states, atol=TOLERANCE, rtol=1e-3)
    one = KvLayout.of(replace(card.config, num_layers=1), BLOCK_SIZE, torch.float32)
    kv, found = KvPool(one, 10, "cpu"), list[torch.Tensor]()
    hidden, known = head.fused(torch.cat(states)[:-1]), token_ids[1:]
    for start in range(0, len(known), chunk):
        part = known[start : start + chunk]
        output = head.forward(
            ragged_batch([(part, start, table)]), hidden[start : start + chunk], kv
        )
        assert output is not None
        found.append(output.logits)
    torch.testing.assert_close(torch.cat(found), expected, atol=TOLERANCE, rtol=1e-3)


def spec(card: ModelCard, speculation: str, **options: Any) -> EngineSpec:
    made = spec_of(Cards(card, card), None, **options)
    made = structs.replace(made, options=replace(made.options, speculation=speculation))
    is_asked = speculation in ("heads", "auto")
    heads = HeadsSpec(card=None, is_optional=speculation == "auto") if is_asked else None
    return structs.replace(made, drafter=heads)


def sixteen(**sampling: Any) -> list[Any]:
    return [request(str(i), PROMPTS[i % 4][i // 4 :], i, **sampling) for i in range(16)]


@pytest.mark.parametrize("which", ["good", "random"])
@pytest.mark.parametrize("kind", SAMPLING)
def test_sixteen_answers_at_once_are_those_without(kind: str, which: str, own: Own) -> None:
    card: ModelCard = getattr(own, which)
    plain, _ = engine_of(spec(card, "off"))
    drafting, _ = engine_of(spec(card, "heads"))
    expected = generate(plain, sixteen(**SAMPLING[kind]))
    tried = kept = 0
    for _ in range(2):  # the second time over cached blocks
        found = generate(drafting, sixteen(**SAMPLING[kind]))
        assert [done.tokens for done in found] == [done.tokens for done in expected]
        assert drafting.check_invariants() == []
        tried, kept = tried + num_tried(found), kept + num_kept(found)
    assert 2 * kept > tried if which == "good" else tried > kept


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_answer_alone_is_that_without_and_takes_drafts(dtype: str, own: Own) -> None:
    plain, _ = engine_of(structs.replace(spec(own.good, "off"), dtype=dtype))
    drafting, _ = engine_of(structs.replace(spec(own.good, "heads"), dtype=dtype))
    for number, prompt in enumerate(PROMPTS):
        body = request("a", prompt, number, temperature=0.8)
        [expected], [found] = generate(plain, [body]), generate(drafting, [body])
        assert found.tokens == expected.tokens
        assert num_kept([found]) > 10


def test_a_prompt_prefilled_elsewhere_is_gone_on_with_from_its_beginning(own: Own) -> None:
    source, source_replica = engine_of(spec(own.good, "heads", max_batch_tokens=6))
    target, target_replica = engine_of(spec(own.good, "heads"))
    for name, prompt in zip("abc", PROMPTS, strict=False):
        body = request(name, prompt, temperature=0.8)
        found = handed_over(body, source, source_replica, target, target_replica)
        [expected] = generate(source, [body])
        assert found.token_ids() == expected.token_ids()
        assert num_kept([found]) > 10
    assert source_replica.heads is not None and target_replica.heads is not None
    assert source_replica.heads.blocks is not None and target_replica.heads.blocks is not None


def test_the_first_of_two_ranks_has_the_layer(own: Own) -> None:
    options = {"tensor_parallel_size": 2}
    asked = sixteen(temperature=0.8)
    with running(spec(own.good, "off", **options)) as replica:
        expected = generate(Engine(replica, spec(own.good, "off", **options).options), asked)
    given = spec(own.good, "heads", **options)
    with running(given) as replica:
        assert replica.heads is not None
        found = generate(eager_engine(replica, given), asked)
    assert [done.token_ids() for done in found] == [done.token_ids() for done in expected]
    assert num_kept(found) > 0


UNFIT = pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("eh_proj.weight", None),
        ("hnorm.weight", None),
        ("mlp.experts.3.up_proj.weight", None),
        ("shared_head.norm.weight", (HIDDEN + 1,)),
        ("shared_head.head.weight", (VOCAB, HIDDEN + 1)),
        ("self_attn.o_proj.weight", (HIDDEN, 1)),
    ],
)


def unfit(own: Own, name: str, shape: tuple[int, ...] | None, folder: Path) -> ModelCard:
    """With a tensor of that shape in its place; None: without it."""
    tensors = dict(own.tensors)
    if shape is None:
        del tensors[PREFIX + name]
    else:
        tensors[PREFIX + name] = torch.zeros(shape)
    return saved_with(own.model, tensors, folder)


@UNFIT
def test_a_layer_that_is_not_whole_is_refused_by_its_tensor(
    name: str, shape: tuple[int, ...] | None, own: Own, tmp_path: Path
) -> None:
    card = unfit(own, name, shape, tmp_path)
    with pytest.raises(BadCheckpoint, match=PREFIX + name):
        load_replica(spec(card, "heads"), lambda phase, fraction: None)
    assert load_replica(spec(card, "off"), lambda phase, fraction: None).heads is None


def test_a_model_without_such_layers_is_refused_by_name(own: Own) -> None:
    card = replace(own.good, config=replace(own.good.config, num_prediction_layers=0))
    with pytest.raises(ConfigError, match="has no layers that predict further tokens"):
        load_replica(spec(card, "heads"), lambda phase, fraction: None)


def loaded_by_auto(card: ModelCard, **changes: Any) -> Replica:
    given = structs.replace(spec(card, "auto"), **changes)
    return load_replica(given, lambda phase, fraction: None)


def test_all_of_it_is_read_to_the_device(tmp_path: Path) -> None:
    model = deepseek_v3()
    tensors = prediction_tensors(model_tensors(model, tmp_path / "plain"))
    card = saved_with(model, tensors, tmp_path / "with")
    meta = torch.device("meta")
    found = read_prediction_layer(card, torch.float32, meta, WeightFormat.FULL)
    own = (found.token_norm, found.state_norm, found.join, found.final_norm, found.embedding)
    devices = {each.device for each in (*own, found.lm_head) if each is not None}
    assert devices == {found.layer.input_norm.device} == {meta}


def test_auto_takes_the_layer_where_it_can_be_had_and_says_nothing_else(own: Own) -> None:
    replica = loaded_by_auto(own.good)
    assert replica.heads is not None
    plain, _ = engine_of(spec(own.good, "off"))
    drafting = eager_engine(replica, spec(own.good, "auto"))
    expected, found = generate(plain, sixteen()), generate(drafting, sixteen())
    assert [done.tokens for done in found] == [done.tokens for done in expected]


def test_auto_leaves_the_layer_out_where_it_is_of_no_use_or_is_not_there(
    own: Own, tmp_path: Path
) -> None:
    """Asked for by name both are refused."""
    tensors = {name: t for name, t in own.tensors.items() if not name.startswith(PREFIX)}
    unwritten = saved_with(own.model, tensors, tmp_path)
    assert loaded_by_auto(unwritten).heads is None
    assert loaded_by_auto(own.good, kv="int8").heads is None


@UNFIT
def test_auto_leaves_a_layer_out_that_is_not_whole(
    name: str, shape: tuple[int, ...] | None, own: Own, tmp_path: Path
) -> None:
    assert loaded_by_auto(unfit(own, name, shape, tmp_path)).heads is None


def test_auto_leaves_a_layer_out_that_cannot_be_read(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(*_: Any) -> Any:
        raise BadCheckpoint("its file is torn")

    monkeypatch.setattr(own_layers, "read_prediction_layer", torn)
    assert loaded_by_auto(own.good).heads is None
    with pytest.raises(BadCheckpoint, match="torn"):
        load_replica(spec(own.good, "heads"), lambda phase, fraction: None)


def test_what_auto_leaves_out_takes_no_room_and_no_row(own: Own, tmp_path: Path) -> None:
    tensors = {name: t for name, t in own.tensors.items() if not name.startswith(PREFIX)}
    unwritten = saved_with(own.model, tensors, tmp_path)
    given = spec(unwritten, "off")
    plain = load_replica(given, lambda phase, fraction: None)
    left_out = loaded_by_auto(unwritten)
    assert left_out.loaded == plain.loaded
    assert left_out.kv.shape == plain.kv.shape


def test_auto_leaves_the_layer_out_where_memory_has_no_room_for_it(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(request: Any, *more: Any) -> Any:
        if request.beside.weight_bytes:
            raise ConfigError("the weights do not fit")
        return plan_memory(request, *more)

    monkeypatch.setattr(optional_heads, "plan_memory", plan)
    assert loaded_by_auto(own.good).heads is None


def test_latents_in_a_quantized_cache_are_not_speculated_for(own: Own) -> None:
    """torch writes them there, and its rows differ by batch."""
    given = structs.replace(spec(own.good, "heads"), kv="int8")
    replica = load_replica(given, lambda phase, fraction: None)
    assert not replica.loaded.has_alike_rows
    with pytest.raises(ConfigError, match="its rows differ by batch"):
        Engine(replica, given.options)
    assert "rows differ" in (Engine(replica, spec(own.good, "auto").options).why_no_drafts or "")
