"""What an engine held is free as soon as nobody holds the engine: the weights, and the pool."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest

from engine.step.engine import Engine
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.runner.ranks.groups import answers_of, running, spec_of


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_an_engine_that_nobody_holds_lets_go_of_its_weights_and_its_pool(
    num_ranks: int, tmp_path: Path, no_collector: None
) -> None:
    card = saved_card(random_model("LlamaForCausalLM"), tmp_path)
    spec = spec_of(card, num_ranks, max_context_tokens=96, kv_memory_bytes=8 << 20)
    with running(spec) as replica:
        engine = Engine(replica, spec.options)
        answers_of(engine, [[1, 2, 3, 4]], 3)
        held = [weakref.ref(each) for each in (engine, replica.runner, replica.kv)]
    assert all(ref() is not None for ref in held)
    del engine, replica
    assert [ref() for ref in held] == [None, None, None]
