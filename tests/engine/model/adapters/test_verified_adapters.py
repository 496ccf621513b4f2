"""Drafts of answers with adapters: each row has the bits of the step that would compute it alone,
and each answer is the one without drafts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from cluster.models.card import DecoderConfig, ModelCard
from engine.contract.commands import GenerateRequest
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.offline.queue import Completion, generate
from kernels.cpu.team import TEAM
from tests.adapter_files import save_adapter
from tests.engine.model.adapters.test_adapted_engine import PROMPT, SEEDS, Adapted, request
from tests.engine.model.adapters.test_merged_weights import ADAPTERS, ROOM, place_all
from tests.engine.model.test_verified_rows import assert_alike, texts_of
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.engine.step.guessing import TickingClock, oracles
from tests.kernels.kernel_sets import cpu_set

BLOCK_SIZE = 4
WAYS = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.9},
    "penalties and logprobs": {"temperature": 0.7, "repetition_penalty": 1.1, "logprobs": 2},
}


@pytest.fixture(autouse=True)
def native() -> None:
    cpu_set("native")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    return saved_card(random_model(tiny_config()), tmp_path_factory.mktemp("base"))


class OfSlots:
    """A decoder whose sequences have adapters: by their number, which is that of their first
    block."""

    def __init__(self, decoder: Decoder, slots: tuple[int, ...]) -> None:
        self._decoder, self._slots = decoder, torch.tensor(slots, dtype=torch.int32)

    @property
    def config(self) -> DecoderConfig:
        return self._decoder.config

    def forward(self, batch: RaggedBatch, pool: KvPool) -> torch.Tensor:
        slots = self._slots[batch.block_tables[:, 0].long()]  # [num_seqs]
        rows = slots.repeat_interleave(batch.query_starts.diff())
        adapters = rows if rows.any() else None
        with torch.inference_mode():
            return self._decoder.forward(replace(batch, adapters=adapters), pool)


@pytest.mark.parametrize("slots", [(1, 2, 0, 3, 1), (2, 0, 3, 1, 2), (1, 1, 1, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_rows_with_adapters_are_those_of_single_steps(
    num_threads: int,
    dtype: torch.dtype,
    slots: tuple[int, ...],
    base: ModelCard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of several beside each other and none, in drafts of 0 to 16 tokens."""
    monkeypatch.setattr(TEAM, "num_threads", num_threads)
    decoder = Decoder.load(base, dtype, "cpu", adapters=ROOM)
    assert decoder.num_native_calls == 1
    folders = {
        slot: save_adapter(tmp_path / f"a{slot}", base.config, **settings)  # type: ignore[arg-type]
        for slot, settings in ADAPTERS.items()
    }
    adapted: Any = OfSlots(place_all(decoder, folders), slots)
    texts = texts_of(base.config.vocab_size, [3, 4, 15, 62, 65])
    layout = KvLayout.of(base.config, BLOCK_SIZE, dtype)
    num_blocks = len(texts) * (1 + 90 // BLOCK_SIZE)
    assert_alike(lambda: KvPool(layout, num_blocks, "cpu"), adapted, texts, BLOCK_SIZE)


def bodies_of(digests: dict[str, str], **sampling: Any) -> list[GenerateRequest]:
    """Of each adapter three, and three of none."""
    found = []
    for name, digest in digests.items():
        for turn in range(3):
            body = request(f"{name}-{turn}", digest, [*PROMPT, turn])
            params = structs.replace(body.sampling, seed=turn, max_tokens=24, **sampling)
            found.append(structs.replace(body, sampling=params, timeout_ms=math.inf))
    return found


def engine_of(base: ModelCard, root: Path, **how: Any) -> tuple[Adapted, dict[str, str]]:
    """With all adapters."""
    limits = {"num_blocks": 256, "max_context_tokens": 64, "max_batch_tokens": 64}
    adapted = Adapted(base, root, **limits, **how)
    return adapted, {"": "", **{name: adapted.add(name) for name in SEEDS}}


def num_kept(found: list[Completion]) -> list[int]:
    return [each.ended.accepted_draft_tokens for each in found if each.ended is not None]


@pytest.mark.parametrize("way", WAYS)
def test_answers_with_adapters_and_drafts_are_those_without(
    way: str, base: ModelCard, tmp_path: Path
) -> None:
    plain, digests = engine_of(base, tmp_path, speculation="off")
    bodies = bodies_of(digests, **WAYS[way])
    expected = generate(plain.engine, bodies)
    texts = [done.token_ids() for done in expected]
    assert len({tuple(text) for text in texts[::3]}) == 4, "adapters change texts"
    pairs = zip(bodies, texts, strict=True)
    asked = [structs.replace(body, prediction=text) for body, text in pairs]
    for mistakes in (0.0, 0.3):
        guessing, _ = engine_of(
            base, tmp_path, clock=TickingClock(), make_guesser=oracles(mistakes)
        )
        found = generate(guessing.engine, asked)
        assert [done.tokens for done in found] == [done.tokens for done in expected]
        assert min(num_kept(found)) > 0
        assert guessing.engine.check_invariants() == []
    looking_up, _ = engine_of(base, tmp_path, clock=TickingClock(), speculation="ngram")
    for _ in range(2):  # the second time over cached blocks
        found = generate(looking_up.engine, asked)
        assert [done.tokens for done in found] == [done.tokens for done in expected]
        assert sum(num_kept(found)) > 24


def test_the_answer_of_another_adapter_is_no_harm_as_a_prediction(
    base: ModelCard, tmp_path: Path
) -> None:
    """It is drafted, and not kept: rows have their own adapter."""
    guessing, digests = engine_of(
        base, tmp_path, clock=TickingClock(), make_guesser=oracles(0.0, shortest=8)
    )
    bodies = bodies_of(digests, temperature=0.0)[::3]
    expected = generate(guessing.engine, bodies)
    texts = [done.token_ids() for done in expected]
    turned = zip(bodies, [*texts[1:], texts[0]], strict=True)
    found = generate(
        guessing.engine, [structs.replace(body, prediction=text) for body, text in turned]
    )
    assert [done.tokens for done in found] == [done.tokens for done in expected]
    tried = sum(done.ended.draft_tokens for done in found if done.ended is not None)
    assert tried > 2 * sum(num_kept(found))
