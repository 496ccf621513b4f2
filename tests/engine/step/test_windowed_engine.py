"""Families with windows in the whole engine: chunks, a warm prefix cache, preemption."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.engine_options import EngineOptions
from cluster.identity import Role
from cluster.sampling import SamplingParams
from engine.contract.commands import GenerateRequest
from engine.contract.spec import EngineSpec
from engine.memory.kv_pool import KvLayout
from engine.offline.queue import generate
from engine.runner.replica import load_replica
from engine.step.engine import Engine
from tests.engine.model.family_models import VOCAB, random_model, saved_card
from tests.engine.step.engine_scenario import ROOT

BLOCK_TOKENS, MAX_TOKENS, WINDOW = 4, 12, 7
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("MistralForCausalLM", {"sliding_window": WINDOW}),
    "gemma 3": ("Gemma3ForCausalLM", {"sliding_window": WINDOW, "sliding_window_pattern": 2}),
}


def prompts() -> list[list[int]]:
    """Nine tokens shared, more than a window; then tails of their own."""
    generator = torch.Generator().manual_seed(3)
    shared = torch.randint(3, VOCAB, (9,), generator=generator).tolist()
    tails = [torch.randint(3, VOCAB, (n,), generator=generator).tolist() for n in (1, 5, 14, 20)]
    return [shared + tail for tail in tails]


def truth(model: Any, token_ids: list[int]) -> list[int]:
    with torch.inference_mode():
        whole = list(token_ids)
        for _ in range(MAX_TOKENS):
            whole.append(int(model(torch.tensor([whole])).logits[0, -1].argmax()))
    return whole[len(token_ids) :]


def engine_of(model: Any, folder: Path, num_blocks: int, max_batch_tokens: int) -> Engine:
    card = saved_card(model, folder)
    layout = KvLayout.of(card.config, BLOCK_TOKENS, torch.float32)
    options = EngineOptions(
        device="cpu",
        block_size_tokens=BLOCK_TOKENS,
        kv_memory_bytes=num_blocks * layout.block_bytes,
        max_batch_tokens=max_batch_tokens,
    )
    spec = EngineSpec(
        card=card,
        dtype="float32",
        role=Role.DECODE,
        worker_id="tested",
        incarnation="only",
        options=options,
    )
    return Engine(load_replica(spec, lambda phase, fraction: None), options)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("num_blocks", "max_batch_tokens"), [(64, 512), (12, 7)])
def test_greedy_tokens_are_those_of_transformers(
    family: str, num_blocks: int, max_batch_tokens: int, tmp_path: Path
) -> None:
    architecture, changes = FAMILIES[family]
    model = random_model(architecture, **changes)
    engine = engine_of(model, tmp_path, num_blocks, max_batch_tokens)
    sampling = SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0, ignore_eos=True)
    bodies = [
        GenerateRequest(
            request_id=str(i),
            token_ids=ids,
            sampling=sampling,
            cache_root=ROOT,
            timeout_ms=math.inf,
        )
        for i, ids in enumerate(prompts())
    ]
    expected = [truth(model, prompt) for prompt in prompts()]
    for _ in range(2):  # the second time over a warm prefix cache
        completions = generate(engine, bodies)
        assert [completion.token_ids() for completion in completions] == expected
        assert engine.check_invariants() == []
    assert (engine.load.now().num_preemptions > 0) is (num_blocks == 12)
