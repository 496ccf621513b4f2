"""The whole engine over a real decoder against transformers, in float32, greedy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
import torch

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.sampling import SamplingParams
from engine.contract.commands import (
    ChoiceToken,
    Deliver,
    GenerateRequest,
    PrefillMode,
    Seed,
    Submit,
)
from engine.contract.spec import EngineSpec
from engine.offline.queue import Completion, collect, generate
from engine.runner.model_runner import Replica
from engine.runner.replica import load_replica
from engine.step.engine import Engine
from tests.engine.model.parity import CLOSE
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.engine.step.engine_scenario import ROOT

BLOCK_TOKENS = 4
BLOCK_BYTES = 3 * 2 * 2 * BLOCK_TOKENS * 32 * 4
MAX_TOKENS = 12

if TYPE_CHECKING:  # its import takes seconds, which other tests need not wait for
    import transformers

    Model: TypeAlias = transformers.LlamaForCausalLM


@pytest.fixture(scope="module")
def model() -> Model:
    return random_model(tiny_config())


@pytest.fixture(scope="module")
def truths(model: Model) -> list[list[int]]:
    return [truth(model, prompt) for prompt in prompts()]


def make_spec(model: Model, folder: Path, *, num_blocks: int = 64, **options: int) -> EngineSpec:
    return EngineSpec(
        card=saved_card(model, folder),
        dtype="float32",
        role=Role.DECODE,
        worker_id="tested",
        incarnation="only",
        options=EngineOptions(
            device="cpu",
            block_size_tokens=BLOCK_TOKENS,
            kv_memory_bytes=num_blocks * BLOCK_BYTES,
            **options,
        ),
    )


def load(model: Model, folder: Path, **options: int) -> tuple[Engine, Replica]:
    spec = make_spec(model, folder, **options)
    replica = load_replica(spec, lambda phase, fraction: None)
    return Engine(replica, spec.options), replica


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    shared = torch.randint(3, 61, (9,), generator=generator).tolist()
    tails = [torch.randint(3, 61, (n,), generator=generator).tolist() for n in (1, 5, 14, 20)]
    return [shared + tail for tail in tails]


def request(request_id: str, token_ids: list[int], **changes: object) -> GenerateRequest:
    return GenerateRequest(
        request_id=request_id,
        token_ids=token_ids,
        sampling=SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0, ignore_eos=True),
        cache_root=ROOT,
        timeout_ms=math.inf,
        **changes,  # type: ignore[arg-type]
    )


def truth(model: Model, token_ids: list[int]) -> list[int]:
    with torch.inference_mode():
        whole = list(token_ids)
        for _ in range(MAX_TOKENS):
            whole.append(int(model(torch.tensor([whole])).logits[0, -1].argmax()))
    return whole[len(token_ids) :]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_batch_tokens": 5},
        {"max_batch_tokens": 7, "num_blocks": 12},
        {"prefix_cache": False, "max_num_seqs": 2},
    ],
    ids=["whole prompts", "chunks", "preemption", "no cache"],
)
def test_greedy_tokens_are_those_of_transformers(
    options: dict[str, int], model: Model, truths: list[list[int]], tmp_path: Path
) -> None:
    engine, _ = load(model, tmp_path, **options)
    bodies = [request(str(i), prompt) for i, prompt in enumerate(prompts())]
    for _ in range(2):  # the second time over a warm prefix cache
        completions = generate(engine, bodies)
        assert [completion.token_ids() for completion in completions] == truths
        assert engine.check_invariants() == []
    if options.get("num_blocks"):
        assert engine.load.now().num_preemptions > 0


def test_a_prompt_prefilled_elsewhere_decodes_to_the_same_tokens(
    model: Model, tmp_path: Path
) -> None:
    source, source_replica = load(model, tmp_path, max_batch_tokens=6)
    target, target_replica = load(model, tmp_path)
    prompt = prompts()[2]
    target.apply(Submit(request("a", prompt, mode=PrefillMode.REMOTE)))
    [reserved] = target.step().reserved
    source.apply(Submit(request("a", prompt, mode=PrefillMode.EXPORT)))
    while source.has_work:
        frame = source.step()
        for prefilled in frame.prefilled:
            for index, block_id in enumerate(prefilled.span.block_ids, prefilled.span.first_index):
                local = reserved.block_ids[index]
                target_replica.kv[local] = source_replica.kv[block_id]
                target.apply(Deliver("a", index, 1))
        if frame.tokens:
            target.apply(Seed("a", [ChoiceToken(e.choice, e.token) for e in frame.tokens]))
    completions = {"a": Completion()}
    while completions["a"].ended is None:
        collect(target.step(), completions)
    assert completions["a"].token_ids() == truth(model, prompt)
    assert source.load.now().exported_blocks == len(reserved.block_ids)


def test_loading_reports_its_phases_and_the_context_that_the_pool_holds(
    model: Model, tmp_path: Path
) -> None:
    reports: list[tuple[str, float]] = []
    replica = load_replica(
        make_spec(model, tmp_path, num_blocks=6), lambda *report: reports.append(report)
    )
    assert replica.max_context_tokens == 6 * BLOCK_TOKENS
    assert replica.load_phases_ms.keys() == {phase for phase, _ in reports}
    assert reports[-1] == ("warm up", 1.0)


def test_a_context_beyond_the_models_is_refused(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the model's limit is 128"):
        load(model, tmp_path, max_context_tokens=129)


def test_logprobs_of_a_prompt_are_those_of_transformers(model: Model, tmp_path: Path) -> None:
    engine, _ = load(model, tmp_path, max_batch_tokens=7)
    sampling = SamplingParams(max_tokens=1, prompt_logprobs=3)
    bodies = [
        GenerateRequest(
            request_id=str(i),
            token_ids=prompt,
            sampling=sampling,
            cache_root=ROOT,
            timeout_ms=math.inf,
        )
        for i, prompt in enumerate(prompts())
    ]
    for body, done in zip(bodies, generate(engine, bodies), strict=True):
        with torch.inference_mode():
            expected = model(torch.tensor([body.token_ids])).logits[0].log_softmax(-1)
        assert [token.token_id for token in done.prompt] == body.token_ids[1:]
        top = torch.tensor([[p for _, p in token.top] for token in done.prompt])
        torch.testing.assert_close(top, expected[:-1].topk(3).values, **CLOSE)
        chosen = torch.tensor([token.logprob for token in done.prompt])
        targets = torch.tensor(body.token_ids[1:])[:, None]
        torch.testing.assert_close(chosen, expected[:-1].gather(-1, targets)[:, 0], **CLOSE)
