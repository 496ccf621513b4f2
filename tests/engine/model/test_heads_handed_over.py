"""Real layers: behind a handoff, a cached prefix and in another choice a head guesses what it does
in the engine that has computed all of the text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from cluster.models.card import ModelCard
from cluster.models.heads.card import HeadsCard
from engine.contract.head_in_blocks import head_in_blocks
from engine.contract.spec import EngineSpec, HeadsSpec
from engine.memory.head_blocks import _HostMarks
from engine.offline.queue import generate
from engine.runner.model_runner import Replica
from engine.step.drafters.head_marks import HeadMarks
from engine.step.drafting.draft_account import DraftAccount
from engine.step.drafting.head_kv import HeadKv
from engine.step.drafting.kept_rates import OwnKeptRates
from engine.step.engine import Engine
from engine.step.requests.sequence import Sequence
from tests.engine.model.test_draft_model_texts import (
    LAYERS,
    Cards,
    handed_over,
    num_kept,
    request,
    spec_of,
)
from tests.engine.model.test_head_texts import eager_engine, engine_of
from tests.engine.model.tiny_eagle import (
    eagle_config,
    good_tensors,
    heads_card,
    random_tensors,
    saved_heads,
)
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.engine.runner.ranks.groups import running
from tests.kernels.kernel_sets import cpu_set

PROMPT = [(7 * i * i + i) % 61 for i in range(43)]
BLOCK_SIZE = 4
Guesses = dict[int, list[int]]
"""By the place of the first in the text."""


@dataclass(frozen=True)
class Alike:
    """A model, and heads whose keys and values have the shape of its own."""

    target: ModelCard
    good: HeadsCard
    random: HeadsCard


@pytest.fixture(autouse=True)
def every_drafter_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a random head, which saves nothing: what it guesses is what is looked at."""
    monkeypatch.setattr(DraftAccount, "is_resting", False)


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Alike:
    cpu_set("native")
    sizes: dict[str, Any] = {"num_key_value_heads": 3, "max_position_embeddings": 512}
    target = random_model(tiny_config(num_hidden_layers=LAYERS, **sizes))
    for layer in target.model.layers:
        for matrix in (layer.self_attn.o_proj, layer.mlp.down_proj):
            matrix.weight.data *= 0.03
    folder, config = tmp_path_factory.mktemp("models"), eagle_config(target.config)
    return Alike(
        target=saved_card(target, folder / "target"),
        good=heads_card(saved_heads(good_tensors(target, config), config, folder / "good")),
        random=heads_card(saved_heads(random_tensors(config), config, folder / "random")),
    )


def spec(alike: Alike, head: HeadsCard | None, kv: str = "auto", **options: Any) -> EngineSpec:
    made = structs.replace(spec_of(Cards(alike.target, alike.target), None, **options), kv=kv)
    if head is None:
        return made
    said = replace(made.options, speculation=head.source)
    return structs.replace(made, drafter=HeadsSpec(card=head), options=said)


@contextmanager
def noted() -> Iterator[Guesses]:
    """What heads guess meanwhile, however often they were wrong."""
    found: Guesses = {}
    guessed = HeadKv.guessed

    def note(kv: HeadKv, token_ids: list[int], place: int) -> None:
        found[place] = list(token_ids)
        guessed(kv, token_ids, place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeadKv, "guessed", note)
        patch.setattr(OwnKeptRates, "chances", lambda self, most, least: [0.9, 0.8, 0.7][:most])
        yield found


@contextmanager
def found_states() -> Iterator[list[bool]]:
    """Whether blocks that an engine begins with have all of a head's pairs."""
    found, state_before = list[bool](), HeadMarks.state_before

    def noted_state(marks: HeadMarks, sequence: Sequence, place: int) -> torch.Tensor | None:
        state = state_before(marks, sequence, place)
        found.append(state is not None)
        return state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeadMarks, "state_before", noted_state)
        yield found


def same_guesses(some: Guesses, others: Guesses) -> list[bool]:
    """Of places that both have guessed at: how long a draft is, is a matter of time."""
    return [
        all(one == other for one, other in zip(some[place], others[place], strict=False))
        for place in sorted(some.keys() & others.keys())
    ]


def forget_all(replica: Replica) -> None:
    assert replica.heads is not None and replica.heads.blocks is not None
    replica.heads.blocks.forget(range(len(replica.kv)))


@pytest.mark.parametrize("kv", ["auto", "int8"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_behind_a_handoff_it_guesses_what_it_would_have_guessed_where_the_prompt_was_computed(
    temperature: float, kv: str, alike: Alike
) -> None:
    """This head looks at all of its context: where that is lost, it guesses something else."""
    body = request("a", PROMPT, max_tokens=40, temperature=temperature)
    plain, _ = engine_of(spec(alike, None, kv))
    [expected] = generate(plain, [body])
    drafts = list[Guesses]()
    for is_handed_over, has_marks in ((False, True), (True, True), (True, False)):
        source, source_replica = engine_of(spec(alike, alike.random, kv, max_batch_tokens=6))
        target, target_replica = engine_of(spec(alike, alike.random, kv))
        with noted() as guesses:
            if is_handed_over:
                found = handed_over(
                    *(body, source, source_replica, target, target_replica),
                    on_the_way=None if has_marks else forget_all,
                )
            else:
                [found] = generate(source, [body])
        assert found.token_ids() == expected.token_ids()
        assert target.check_invariants() == source.check_invariants() == []
        drafts.append(guesses)
    alone, warm, cold = drafts
    assert all(same_guesses(alone, warm))
    assert len(same_guesses(alone, warm)) > 2
    assert not all(same_guesses(alone, cold))


def test_what_a_good_head_gets_right_behind_a_handoff_is_what_it_gets_right_alone(
    alike: Alike,
) -> None:
    body = request("a", PROMPT, max_tokens=60)
    source, source_replica = engine_of(spec(alike, alike.good, max_batch_tokens=6))
    target, target_replica = engine_of(spec(alike, alike.good))
    with noted() as here:
        [expected] = generate(source, [body])
    with noted() as there:
        found = handed_over(body, source, source_replica, target, target_replica)
    assert found.token_ids() == expected.token_ids()
    assert all(same_guesses(here, there)) and same_guesses(here, there)
    assert num_kept([found]) > 20


def test_over_a_cached_prefix_and_in_another_choice_it_has_all_of_its_context(
    alike: Alike,
) -> None:
    engine, replica = engine_of(spec(alike, alike.random))
    body = request("a", PROMPT, max_tokens=12, temperature=0.7, n=2)
    drafts = list[Guesses]()
    for number in range(3):
        if number == 2:
            forget_all(replica)
        with noted() as guesses:
            generate(engine, [body])
        drafts.append(guesses)
    first, again, cold = drafts
    assert all(same_guesses(first, again)) and same_guesses(first, again)
    assert not all(same_guesses(first, cold))


def test_in_a_group_it_lies_in_the_first_ranks_blocks_and_texts_are_those_without(
    alike: Alike,
) -> None:
    """At once, over cached blocks, and in other choices, whose blocks are copied."""
    asked = [
        request(str(i), PROMPT[i:], i, max_tokens=16, temperature=0.8, n=1 + i % 2)
        for i in range(6)
    ]
    plain, given = (spec(alike, head, tensor_parallel_size=2) for head in (None, alike.good))
    with running(plain) as replica:
        expected = generate(Engine(replica, plain.options), asked)
        depth = replica.kv.shape[1]
    with running(given) as replica, found_states() as found:
        assert replica.heads is not None and replica.heads.blocks is not None
        room = head_in_blocks(given)
        assert room is not None and replica.kv.shape[1] == depth + 3 * room.num_layers
        engine = eager_engine(replica, given)
        for num_found in (3, 9):  # of further choices; and of all
            found.clear()
            texts = generate(engine, asked)
            assert [done.tokens for done in texts] == [done.tokens for done in expected]
            assert num_kept(texts) > 10
            assert sum(found) >= num_found
        assert engine.check_invariants() == []


def test_blocks_have_room_for_the_head_and_no_pool_lies_beside_them(alike: Alike) -> None:
    given = spec(alike, alike.good)
    _, plain = engine_of(spec(alike, None))
    _, drafting = engine_of(given)
    room = head_in_blocks(given)
    assert room is not None
    layer_bytes = 2 * 3 * BLOCK_SIZE * 32 * 4
    assert room.num_layers == 1 + -(-(8 + 4 * 96) // layer_bytes) == 2
    assert drafting.kv.shape[1] == plain.kv.shape[1] + 2
    assert len(drafting.kv) == len(plain.kv) * LAYERS // (LAYERS + 2)
    assert drafting.loaded.num_native_calls == plain.loaded.num_native_calls == 1


def test_blocks_without_marks_say_nothing_and_other_tokens_do_not_match(alike: Alike) -> None:
    """A block of one text, given to another whose head did not read it."""
    engine, replica = engine_of(spec(alike, alike.random))
    generate(engine, [request("a", PROMPT, max_tokens=8)])
    assert replica.heads is not None and replica.heads.blocks is not None
    blocks = replica.heads.blocks
    every = range(len(replica.kv))
    assert all(blocks.state_behind([block], [12345]) is None for block in every)
    assert isinstance(blocks._marks, _HostMarks)
    assert int((blocks._marks._marks != 0).sum()) >= len(PROMPT) // BLOCK_SIZE


def test_texts_are_those_without_while_sequences_are_preempted(alike: Alike) -> None:
    """Blocks for two of the four, so that all begin again now and then."""
    asked = [request(str(i), PROMPT[i:], i, max_tokens=40, temperature=0.8) for i in range(4)]
    plain, _ = engine_of(spec(alike, None))
    expected = generate(plain, asked)
    bytes_each = (LAYERS + 2) * 2 * 3 * BLOCK_SIZE * 32 * 4
    few: Engine
    few, _ = engine_of(spec(alike, alike.good, kv_memory_bytes=50 * bytes_each))
    found = generate(few, asked)
    assert [done.token_ids() for done in found] == [done.token_ids() for done in expected]
    assert few.load.now().num_preemptions > 0
    assert few.check_invariants() == []


def test_a_head_of_another_shape_keeps_a_pool_of_its_own_and_a_group_says_what_one_rank_does(
    alike: Alike, tmp_path: Path
) -> None:
    config = eagle_config(tiny_config(), num_key_value_heads=1)
    other = heads_card(saved_heads(random_tensors(config), config, tmp_path / "other"))
    assert head_in_blocks(spec(alike, other)) is None
    alone = head_in_blocks(spec(alike, alike.good))
    assert head_in_blocks(spec(alike, alike.good, tensor_parallel_size=3)) == alone is not None
    assert head_in_blocks(spec(alike, None)) is None
