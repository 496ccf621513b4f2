"""SmolLM2's answers with prompt lookup are those without, token for token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from benchmarks.copying_prompts import CHATTING, COPYING
from cluster.models.cache.store import ModelStore
from cluster.models.text.template_files import load_chat_template
from cluster.models.text.tokenizer import load_tokenizer
from cluster.sampling import SamplingParams
from engine.contract.commands import GenerateRequest
from engine.offline.queue import Completion, generate
from engine.offline.replica import OfflineSetup, offline_spec
from engine.runner.model_runner import Replica
from engine.runner.replica import load_replica
from engine.step.engine import Engine
from tests.kernels.kernel_sets import cpu_set

SETUP = OfflineSetup(device="cpu", prefix_cache=True)


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    cpu_set("native")
    spec = offline_spec(SETUP)
    options = replace(spec.options, kv_memory_bytes=128 << 20, max_context_tokens=1024)
    yield load_replica(msgspec.structs.replace(spec, options=options), lambda phase, fraction: None)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Copying ones and questions in turns."""
    card = ModelStore().resolve("smollm2")
    template, tokenizer = load_chat_template(card), load_tokenizer(card)
    assert template is not None
    texts = [text for pair in zip(COPYING, CHATTING, strict=True) for text in pair]
    rendered = (template.render([{"role": "user", "content": text}]) for text in texts)
    return [tokenizer.encode(text, add_special=False) for text in rendered]


def engine(replica: Replica, speculation: str) -> Engine:
    return Engine(replica, replace(SETUP.options, speculation=speculation))


def bodies(prompts: list[list[int]], **sampling: Any) -> list[GenerateRequest]:
    return [
        GenerateRequest(
            request_id=str(i),
            token_ids=prompt,
            sampling=SamplingParams(**({"max_tokens": 40, "seed": i} | sampling)),
            cache_root=bytes(16),
            timeout_ms=600_000.0,
        )
        for i, prompt in enumerate(prompts)
    ]


def num_kept(completions: list[Completion]) -> int:
    return sum(done.ended.accepted_draft_tokens for done in completions if done.ended is not None)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 0.0, "repetition_penalty": 1.1, "logprobs": 2},
    ],
    ids=["greedy", "seeded", "penalties and logprobs"],
)
def test_sixteen_answers_at_once_are_those_without(
    sampling: dict[str, Any], replica: Replica, prompts: list[list[int]]
) -> None:
    asked = bodies(prompts[:16], **sampling)
    plain = generate(engine(replica, "off"), asked)
    drafting = engine(replica, "ngram")
    found = generate(drafting, asked)
    assert [done.tokens for done in found] == [done.tokens for done in plain]
    assert [done.finish_reasons for done in found] == [done.finish_reasons for done in plain]
    assert drafting.check_invariants() == []


@pytest.mark.parametrize("number", range(4))
def test_an_answer_alone_is_that_without_and_takes_drafts(
    number: int, replica: Replica, prompts: list[list[int]]
) -> None:
    """Of what copies; the second time over the cached blocks of the first."""
    asked = bodies([prompts[2 * number]], temperature=0.0)
    [plain] = generate(engine(replica, "off"), asked)
    drafting = engine(replica, "auto")
    assert drafting.why_no_drafts is None
    for _ in range(2):
        found = generate(drafting, asked)
        assert found[0].tokens == plain.tokens
        assert num_kept(found) > 0


def test_a_prediction_that_is_right_is_taken_and_one_that_is_wrong_changes_nothing(
    replica: Replica, prompts: list[list[int]]
) -> None:
    asked = bodies([prompts[1]], temperature=0.0)
    [plain] = generate(engine(replica, "off"), asked)
    answer = plain.token_ids()
    for prediction in (answer, [(token + 1) % 40_000 for token in answer]):
        body = msgspec.structs.replace(asked[0], prediction=prediction)
        [found] = generate(engine(replica, "ngram"), [body])
        assert found.tokens == plain.tokens
        assert found.ended is not None
        is_right = prediction is answer
        assert (found.ended.usage.accepted_prediction_tokens > len(answer) // 2) is is_right
