"""Beam searches of the whole engine against transformers', over a real decoder in float32."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
import torch

from cluster.beam_search import BeamSearch, EarlyStopping
from cluster.sampling import SamplingParams
from engine.contract.commands import (
    ChoiceToken,
    Deliver,
    GenerateRequest,
    PrefillMode,
    Seed,
    Submit,
)
from engine.offline.queue import Completion, collect, generate
from engine.step.engine import Engine
from tests.engine.model.test_engine_parity import load
from tests.engine.model.tiny_llama import random_model, tiny_config
from tests.engine.step.engine_scenario import ROOT

if TYPE_CHECKING:
    import transformers

    Model: TypeAlias = transformers.LlamaForCausalLM

ENDS = (7, 19, 30, 44, 52)
"""Tokens that end a text; of sixty-one, and answers of twelve tokens, some end by them."""
CLOSE = 2e-4
"""Of scores: float32 sums in another order."""
_STOPPING = {
    EarlyStopping.AT_ONCE: True,
    EarlyStopping.NO_BETTER_NOW: False,
    EarlyStopping.NEVER_BETTER: "never",
}

Answers = list[tuple[list[int], float]]


@pytest.fixture(scope="module")
def model() -> Model:
    """Small logits, so that ends come and texts part late."""
    return random_model(tiny_config(initializer_range=0.12), seed=4)


@pytest.fixture(scope="module")
def engine(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return load(model, tmp_path_factory.mktemp("model"), num_blocks=128)[0]


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(8)
    return [torch.randint(20, 61, (2 + 3 * i,), generator=generator).tolist() for i in range(10)]


def body_of(name: str, prompt: list[int], beams: BeamSearch, **changes: object) -> GenerateRequest:
    return GenerateRequest(
        request_id=name,
        token_ids=prompt,
        sampling=SamplingParams(
            max_tokens=12,
            temperature=0.0,
            ignore_eos=True,
            stop_token_ids=ENDS,
            n=beams.width,
            logprobs=0,
            beams=beams,
        ),
        cache_root=ROOT,
        timeout_ms=math.inf,
        **changes,  # type: ignore[arg-type]
    )


@torch.inference_mode()
def theirs(model: Model, prompt: list[int], beams: BeamSearch) -> Answers:
    found = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=12,
        do_sample=False,
        num_beams=beams.width,
        num_return_sequences=beams.width,
        length_penalty=beams.length_penalty,
        early_stopping=_STOPPING[beams.early_stopping],
        eos_token_id=list(ENDS),
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
    )
    rows = [row[len(prompt) :] for row in found.sequences.tolist()]
    return [
        (_until_end(row), score)
        for row, score in zip(rows, found.sequences_scores.tolist(), strict=True)
    ]


def _until_end(row: list[int]) -> list[int]:
    """Behind an end there is padding."""
    ends = [at for at, token_id in enumerate(row) if token_id in ENDS]
    return row[: ends[0] + 1] if ends else row


def ours(completion: Completion, beams: BeamSearch) -> Answers:
    found = []
    for choice in range(beams.width):
        logprobs = [token.logprob or 0.0 for token in completion.tokens[choice]]
        score = sum(logprobs) / len(logprobs) ** beams.length_penalty
        found.append((completion.token_ids(choice), score))
    return found


def assert_same(found: Answers, expected: Answers) -> None:
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
    for (_, score), (_, wanted) in zip(found, expected, strict=True):
        assert math.isclose(score, wanted, rel_tol=CLOSE, abs_tol=CLOSE)


def assert_conserved(engine: Engine) -> None:
    pool = engine.placement.pool
    assert engine.check_invariants() == []
    assert pool.leases == frozenset()
    assert pool.num_available == pool.num_blocks


@pytest.mark.parametrize("stopping", list(EarlyStopping))
@pytest.mark.parametrize("width", [2, 4])
def test_ten_prompts_have_transformers_answers_and_scores(
    model: Model, engine: Engine, width: int, stopping: EarlyStopping
) -> None:
    num_ended_early = 0
    for at, prompt in enumerate(prompts()):
        penalty = (1.0, 0.6, 2.0, 0.0, -0.5)[at % 5]
        beams = BeamSearch(width=width, length_penalty=penalty, early_stopping=stopping)
        [completion] = generate(engine, [body_of(f"{at}", prompt, beams)])
        found = ours(completion, beams)
        assert_same(found, theirs(model, prompt, beams))
        assert_conserved(engine)
        num_ended_early += any(len(tokens) < 12 for tokens, _ in found)
    assert num_ended_early >= 2


def test_searches_side_by_side_have_the_same_answers(model: Model, engine: Engine) -> None:
    beams = BeamSearch(width=4)
    bodies = [body_of(f"{at}", prompt, beams) for at, prompt in enumerate(prompts()[:5])]
    for body, completion in zip(bodies, generate(engine, bodies), strict=True):
        assert_same(ours(completion, beams), theirs(model, body.token_ids, beams))
    assert_conserved(engine)


def test_a_prompt_from_a_prefill_engine_has_the_same_answers(model: Model, tmp_path: Path) -> None:
    prefill, source = load(model, tmp_path / "a")
    decode, target = load(model, tmp_path / "b")
    beams = BeamSearch(width=4)
    for at, prompt in enumerate(prompts()[2:5]):
        body = body_of(f"{at}", prompt, beams, mode=PrefillMode.REMOTE)
        completions = {body.request_id: Completion()}
        decode.apply(Submit(body))
        reserved = decode.step().reserved[0]
        prefill.apply(Submit(body_of(f"{at}", prompt, beams, mode=PrefillMode.EXPORT)))
        tokens, block_ids = [], list[int]()
        while not tokens or len(block_ids) < len(reserved.block_ids):
            frame = prefill.step()
            tokens += [ChoiceToken(event.choice, event.token) for event in frame.tokens]
            block_ids += [each for ready in frame.prefilled for each in ready.span.block_ids]
        target.kv[list(reserved.block_ids)] = source.kv[block_ids]
        decode.apply(Seed(body.request_id, tokens))
        decode.apply(Deliver(body.request_id, 0, len(block_ids)))
        while completions[body.request_id].ended is None:
            collect(decode.step(), completions)
        assert_same(ours(completions[body.request_id], beams), theirs(model, prompt, beams))
        assert_conserved(decode)
