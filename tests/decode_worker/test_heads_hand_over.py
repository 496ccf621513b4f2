"""A head's keys and values go with the blocks that a decode worker reads and verifies: it goes on
from the text's beginning, with a state that no message carries."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from msgspec import structs

from engine.contract.spec import HeadsSpec
from engine.step.batch.step_work import StepWork
from engine.step.computation import Computation
from engine.step.drafters.head_marks import HeadMarks
from engine.step.requests.sequence import Sequence
from tests.decode_worker.group_handover import decode_side, hand_over, prefill_side
from tests.engine.model.tiny_eagle import eagle_config, heads_card, random_tensors, saved_heads
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.engine.runner.ranks.groups import greedy_tokens, spec_of
from tests.engine.step.engine_scenario import VirtualClock
from tests.kernels.kernel_sets import cpu_set

NUM_TOKENS = 12
PROMPTS = [[(11 * i * i + number) % 61 for i in range(35 + number)] for number in range(2)]
LONGER = [*PROMPTS, PROMPTS[0] + PROMPTS[1]]


def where_guesses_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """By it a step of the target takes a millisecond: the head is never left out for its price."""
    clock, compute = VirtualClock(), Computation.compute

    def timed(computation: Computation, work: StepWork) -> None:
        clock.now_s += 1e-3
        compute(computation, work)

    monkeypatch.setattr(Computation, "compute", timed)
    return clock


@pytest.mark.parametrize("kv", ["auto", "int8"])
def test_a_decode_worker_goes_on_with_what_the_prefill_workers_head_has_read(
    kv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_set("native")
    target = random_model(tiny_config(num_hidden_layers=4, num_key_value_heads=3))
    config = eagle_config(target.config)
    head = heads_card(saved_heads(random_tensors(config), config, tmp_path / "head"))
    card = saved_card(target, tmp_path / "target")
    plain = structs.replace(
        spec_of(card, 1, max_context_tokens=120, kv_memory_bytes=4 << 20, speculation="off"), kv=kv
    )
    spec = structs.replace(
        plain,
        drafter=HeadsSpec(card=head),
        options=replace(plain.options, speculation=head.source),
    )
    found = list[bool]()
    state_before = HeadMarks.state_before

    def noted(marks: HeadMarks, sequence: Sequence, place: int) -> torch.Tensor | None:
        state = state_before(marks, sequence, place)
        found.append(state is not None)
        return state

    monkeypatch.setattr(HeadMarks, "state_before", noted)
    clock = where_guesses_cost_nothing(monkeypatch)
    with ExitStack() as closers:
        source = prefill_side(spec, 1, 16, closers, clock=clock)
        reader = decode_side(spec, 1, 16, closers, clock=clock)
        handovers = [hand_over(source, reader, prompt, NUM_TOKENS) for prompt in LONGER]
        assert source.engine.check_invariants() == reader.engine.check_invariants() == []
    assert [each.completion.token_ids() for each in handovers] == greedy_tokens(
        plain, LONGER, NUM_TOKENS
    )
    assert len(found) >= len(LONGER) and all(found)
