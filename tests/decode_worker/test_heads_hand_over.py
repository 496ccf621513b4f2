"""A head's keys and values go with the blocks that a decode worker reads and verifies: it goes on
from the text's beginning, with a state that no message carries. Of groups the first ranks have it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cluster.models.card import ModelCard
from cluster.models.heads.card import HeadsCard
from engine.contract.spec import EngineSpec, HeadsSpec
from engine.offline.queue import generate
from engine.offline.replica import greedy_request
from engine.step.batch.step_work import StepWork
from engine.step.computation import Computation
from engine.step.drafters.guess_price import GuessPrice
from engine.step.drafting.draft_account import DraftAccount
from engine.step.engine import Engine
from tests.decode_worker.group_handover import Handover, decode_side, hand_over, prefill_side
from tests.engine.model.test_heads_handed_over import (
    Guesses,
    found_states,
    noted,
    same_guesses,
)
from tests.engine.model.tiny_eagle import eagle_config, heads_card, random_tensors, saved_heads
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.engine.model.tiny_prediction import (
    deepseek_v3,
    model_tensors,
    prediction_tensors,
    saved_with,
)
from tests.engine.runner.ranks.groups import greedy_tokens, running, spec_of
from tests.engine.step.engine_scenario import VirtualClock
from tests.kernels.kernel_sets import cpu_set

pytestmark = pytest.mark.timeout(300)
NUM_TOKENS = 12
PROMPTS = [[(11 * i * i + number) % 61 for i in range(35 + number)] for number in range(2)]
LONGER = [*PROMPTS, PROMPTS[0] + PROMPTS[1]]
LIMITS: dict[str, Any] = {"max_context_tokens": 120, "kv_memory_bytes": 4 << 20}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """By it a step of the target takes a millisecond, and guesses are expected to take nothing: the
    head is never left out for its price."""
    cpu_set("native")
    clock, compute = VirtualClock(), Computation.compute

    def timed(computation: Computation, work: StepWork) -> None:
        clock.now_s += 1e-3
        compute(computation, work)

    monkeypatch.setattr(Computation, "compute", timed)
    monkeypatch.setattr(GuessPrice, "token_ms", lambda self, num_sequences, cost: 0.0)
    monkeypatch.setattr(DraftAccount, "is_resting", False)
    return clock


def with_head(plain: EngineSpec, head: HeadsCard | None) -> EngineSpec:
    """None: the model's own layer."""
    said = "heads" if head is None else head.source
    options = replace(plain.options, speculation=said)
    return structs.replace(plain, drafter=HeadsSpec(card=head), options=options)


def guesses_alone(spec: EngineSpec, prompts: list[list[int]], clock: VirtualClock) -> list[Guesses]:
    """Of one process that computes all of each prompt, and decodes."""
    every = list[Guesses]()
    with running(spec) as replica:
        engine = Engine(replica, spec.options, clock=clock)
        for prompt in prompts:
            with noted() as guesses:
                generate(engine, [greedy_request("r", prompt, NUM_TOKENS)])
            every.append(guesses)
    return every


def handed_over(
    spec: EngineSpec, ranks: tuple[int, int], prompts: list[list[int]], clock: VirtualClock
) -> tuple[list[Handover], list[Guesses]]:
    """One after the other, with what the decode worker's head guesses of each."""
    with ExitStack() as closers:
        source = prefill_side(spec, ranks[0], 16, closers, clock=clock)
        reader = decode_side(spec, ranks[1], 16, closers, clock=clock)
        handovers, every = list[Handover](), list[Guesses]()
        for prompt in prompts:
            with noted() as guesses:
                handovers.append(hand_over(source, reader, prompt, NUM_TOKENS))
            every.append(guesses)
        assert source.engine.check_invariants() == reader.engine.check_invariants() == []
    return handovers, every


def check(
    plain: EngineSpec,
    head: HeadsCard | None,
    ranks: tuple[int, int],
    prompts: list[list[int]],
    clock: VirtualClock,
) -> None:
    """Texts are those without, and guesses those of a head that has read all of the prompt."""
    spec = with_head(plain, head)
    with found_states() as found:
        handovers, guesses = handed_over(spec, ranks, prompts, clock)
    texts = [each.completion.token_ids() for each in handovers]
    assert texts == greedy_tokens(plain, prompts, NUM_TOKENS)
    assert len(found) >= len(prompts) and all(found)
    for there, alone in zip(guesses, guesses_alone(spec, prompts, clock), strict=True):
        assert all(same_guesses(alone, there))
        assert len(same_guesses(alone, there)) > 2


@pytest.mark.parametrize(
    ("ranks", "kv"),
    [((1, 1), "auto"), ((1, 1), "int8"), ((2, 2), "auto"), ((1, 2), "int8"), ((3, 2), "auto")],
    ids=str,
)
def test_a_decode_worker_goes_on_with_what_the_prefill_workers_head_has_read(
    ranks: tuple[int, int], kv: str, tmp_path: Path, clock: VirtualClock
) -> None:
    """Of five KV heads two are the first of two ranks', and one of three."""
    sizes = {"num_attention_heads": 5, "num_key_value_heads": 5, "hidden_size": 160}
    target = random_model(tiny_config(num_hidden_layers=4, **sizes))
    config = eagle_config(target.config)
    head = heads_card(saved_heads(random_tensors(config), config, tmp_path / "head"))
    card = saved_card(target, tmp_path / "target")
    plain = structs.replace(spec_of(card, 1, speculation="off", **LIMITS), kv=kv)
    check(plain, head, ranks, LONGER, clock)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    """DeepSeek V3 with a layer for further tokens: its latent is whole at every rank."""
    folder, model = tmp_path_factory.mktemp("own"), deepseek_v3()
    tensors = prediction_tensors(model_tensors(model, folder / "plain"))
    return saved_with(model, tensors, folder / "own")


@pytest.mark.parametrize("ranks", [(2, 2), (2, 1)], ids=str)
def test_so_does_the_models_own_layer_with_its_latent(
    ranks: tuple[int, int], own: ModelCard, clock: VirtualClock
) -> None:
    plain = spec_of(own, 1, speculation="off", **LIMITS)
    check(plain, None, ranks, PROMPTS, clock)
