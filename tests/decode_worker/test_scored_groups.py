"""Groups of two ranks that score a prompt and hand it over: as such a group does alone."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from engine.contract.commands import GenerateRequest
from engine.offline.queue import Completion, generate
from engine.step.engine import Engine
from tests.decode_worker.group_handover import (
    decode_side,
    hand_over_request,
    prefill_side,
    request_of,
)
from tests.engine.model.family_models import VOCAB, random_model, saved_card
from tests.engine.model.parity import random_prompts
from tests.engine.runner.ranks.groups import running, spec_of

pytestmark = pytest.mark.timeout(300)
NUM_TOKENS = 8
LIMITS: dict[str, Any] = {"max_context_tokens": 192, "kv_memory_bytes": 4 << 20}
PROMPTS = random_prompts((100, 37), VOCAB)
"""More rows than a step may score, and fewer."""


def scored_request(prompt: list[int]) -> GenerateRequest:
    body = request_of(prompt, NUM_TOKENS)
    return structs.replace(body, sampling=structs.replace(body.sampling, prompt_logprobs=2))


def alone(spec: Any) -> list[Completion]:
    """One engine that does it all, one prompt after the other."""
    with running(spec) as replica:
        engine = Engine(replica, spec.options)
        return [generate(engine, [scored_request(prompt)])[0] for prompt in PROMPTS]


@pytest.mark.parametrize("ranks", [(2, 2), (2, 1), (1, 2)], ids=str)
def test_what_hands_over_scores_as_such_a_group_does_alone(
    ranks: tuple[int, int], tmp_path: Path
) -> None:
    card = saved_card(random_model("LlamaForCausalLM"), tmp_path)
    spec = spec_of(card, 1, **LIMITS)
    completions = alone(spec_of(card, ranks[0], **LIMITS))
    with ExitStack() as closers:
        source = prefill_side(spec, ranks[0], 16, closers)
        target = decode_side(spec, ranks[1], 16, closers)
        for prompt, completion in zip(PROMPTS, completions, strict=True):
            handover = hand_over_request(source, target, scored_request(prompt))
            assert handover.scores == completion.prompt
            assert len(handover.scores) == len(prompt) - 1
            assert handover.completion.prompt == []
            assert handover.completion.token_ids() == completion.token_ids()
        assert source.engine.check_invariants() == target.engine.check_invariants() == []
