"""Groups of unequal ranks and block sizes, in real processes over NIXL, hand a prompt over."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cluster.models.card import ModelCard
from engine.contract.commands import Command, PrefillLocally
from engine.contract.spec import EngineSpec
from tests.decode_worker.group_handover import (
    Handover,
    decode_side,
    hand_over,
    prefill_side,
    request_of,
)
from tests.engine.model.family_models import VOCAB, random_model, saved_card
from tests.engine.model.layers.test_latent_families import GROUPS, V3, deepseek
from tests.engine.model.parity import random_prompts
from tests.engine.runner.ranks.groups import greedy_tokens, spec_of
from tests.kvtransfer.kv_blocks import wait_until

pytestmark = pytest.mark.timeout(300)
NUM_TOKENS = 12
PROMPTS = random_prompts((100, 30, 64), VOCAB)
LIMITS: dict[str, Any] = {"max_context_tokens": 192, "kv_memory_bytes": 4 << 20}


def tokens_handed_over(
    spec: EngineSpec, ranks: tuple[int, int], sizes: tuple[int, int], prompts: list[list[int]]
) -> list[list[int]]:
    """One after the other, so that the caches of both sides are used."""
    with ExitStack() as closers:
        source = prefill_side(spec, ranks[0], sizes[0], closers)
        target = decode_side(spec, ranks[1], sizes[1], closers)
        handovers = [hand_over(source, target, prompt, NUM_TOKENS) for prompt in prompts]
        assert source.engine.check_invariants() == target.engine.check_invariants() == []
    return [handover.completion.token_ids() for handover in handovers]


def llama(folder: Path) -> ModelCard:
    """Two KV heads: of three ranks, two hold the same one."""
    return saved_card(random_model("LlamaForCausalLM"), folder)


def latent(folder: Path) -> ModelCard:
    """DeepSeek V3: one latent, whole at every rank."""
    return saved_card(deepseek(V3, **GROUPS), folder)


@pytest.mark.parametrize(
    ("make", "ranks", "sizes"),
    [
        (llama, (1, 2), (16, 16)),
        (llama, (3, 2), (16, 64)),
        (llama, (2, 4), (64, 16)),
        (latent, (2, 1), (16, 16)),
        (latent, (1, 2), (64, 16)),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_tokens_are_those_of_one_rank_that_does_it_all(
    make: Any, ranks: tuple[int, int], sizes: tuple[int, int], tmp_path: Path
) -> None:
    card = make(tmp_path)
    longer = [*PROMPTS, PROMPTS[0] + PROMPTS[1]]  # what is cached of it ends within a block
    alone = greedy_tokens(spec_of(card, 1, **LIMITS), longer, NUM_TOKENS)
    assert tokens_handed_over(spec_of(card, 1, **LIMITS), ranks, sizes, longer) == alone


@pytest.mark.parametrize("ranks", [(2, 1), (1, 2)], ids=str)
def test_a_quantized_cache_travels_with_its_scales(ranks: tuple[int, int], tmp_path: Path) -> None:
    spec = structs.replace(spec_of(llama(tmp_path), 1, **LIMITS), kv="int8")
    alone = greedy_tokens(spec, PROMPTS, NUM_TOKENS)
    assert tokens_handed_over(spec, ranks, (16, 64), PROMPTS) == alone


def test_when_a_rank_of_the_source_dies_the_prompt_is_computed_here(tmp_path: Path) -> None:
    """It is killed between the announcement and the reads."""
    commands: list[Command] = []
    spec = spec_of(llama(tmp_path), 1, **LIMITS)
    alone = greedy_tokens(spec, PROMPTS[:1], NUM_TOKENS)
    with ExitStack() as closers:
        source = prefill_side(spec, 2, 16, closers)
        target = decode_side(spec, 2, 16, closers)
        hand_over(source, target, PROMPTS[1], NUM_TOKENS)
        handover = Handover(source, target, request_of(PROMPTS[0], NUM_TOKENS))
        handover.turn_target()
        wait_until(lambda: bool(commands.extend(handover.announced()) or commands), "words")
        rank = source.spawner.ranks[1]
        rank.kill()
        wait_until(lambda: rank.poll() is not None, "the rank's end")
        for command in commands:
            target.tell(command)
        wait_until(lambda: bool(handover.turn_target() or handover.fetched), "the reads' end")
        assert handover.fetched[0].error.startswith("rank 1: ")
        target.tell(PrefillLocally("r"))
        wait_until(lambda: bool(handover.turn_target() or handover.completion.ended), "tokens")
        assert [handover.completion.token_ids()] == alone
