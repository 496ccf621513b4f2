"""A latent model's blocks, computed in one engine and decoded in another, over the real runner."""

from __future__ import annotations

import math

import pytest
import torch

from cluster.engine_options import EngineOptions
from cluster.identity import Role
from cluster.models.card import ModelCard
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
from kernels.dispatch.block_digest import block_digest
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackNetwork, LoopbackTransport
from kvtransfer.verification import digest_bytes
from tests.engine.model.family_models import VOCAB, saved_card
from tests.engine.model.layers.test_latent_families import GROUPS, V3, deepseek
from tests.engine.model.parity import random_prompts, reference
from tests.engine.step.engine_scenario import ROOT

BLOCK_TOKENS = 4
MAX_TOKENS = 12
PROMPTS = random_prompts((30, 17), VOCAB)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    return saved_card(deepseek(V3, **GROUPS), tmp_path_factory.mktemp("v3"))


@pytest.fixture(scope="module")
def truths() -> list[list[int]]:
    answers = reference(deepseek(V3, **GROUPS), PROMPTS)
    return [
        tokens[len(prompt) :][:MAX_TOKENS]
        for (tokens, _), prompt in zip(answers, PROMPTS, strict=True)
    ]


def load(card: ModelCard, *, kv: str = "auto", **options: int) -> tuple[Engine, Replica]:
    spec = EngineSpec(
        card=card,
        dtype="float32",
        kv=kv,
        role=Role.DECODE,
        worker_id="tested",
        incarnation="only",
        options=EngineOptions(
            device="cpu", block_size_tokens=BLOCK_TOKENS, kv_memory_bytes=1 << 18, **options
        ),
    )
    replica = load_replica(spec, lambda phase, fraction: None)
    return Engine(replica, spec.options), replica


def request(request_id: str, token_ids: list[int], **changes: object) -> GenerateRequest:
    return GenerateRequest(
        request_id=request_id,
        token_ids=token_ids,
        sampling=SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0, ignore_eos=True),
        cache_root=ROOT,
        timeout_ms=math.inf,
        **changes,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("options", [{}, {"max_batch_tokens": 5}], ids=["whole", "chunks"])
def test_the_engine_gives_the_tokens_of_transformers(
    options: dict[str, int], card: ModelCard, truths: list[list[int]]
) -> None:
    engine, _ = load(card, **options)
    bodies = [request(str(i), prompt) for i, prompt in enumerate(PROMPTS)]
    for _ in range(2):  # the second time over a warm prefix cache
        assert [completion.token_ids() for completion in generate(engine, bodies)] == truths
        assert engine.check_invariants() == []


@pytest.mark.parametrize("kv", ["auto", "int8"])
def test_a_prompt_prefilled_elsewhere_decodes_to_the_same_tokens(
    kv: str, card: ModelCard, truths: list[list[int]]
) -> None:
    source, source_replica = load(card, kv=kv, max_batch_tokens=6)
    target, target_replica = load(card, kv=kv)
    target.apply(Submit(request("a", PROMPTS[0], mode=PrefillMode.REMOTE)))
    [reserved] = target.step().reserved
    source.apply(Submit(request("a", PROMPTS[0], mode=PrefillMode.EXPORT)))
    while source.has_work:
        frame = source.step()
        for prefilled in frame.prefilled:
            for index, block_id in enumerate(prefilled.span.block_ids, prefilled.span.first_index):
                announced = digest_bytes(block_digest, source_replica.kv, [block_id])
                local = reserved.block_ids[index]
                assert digest_bytes(block_digest, target_replica.kv, [local]) != announced
                target_replica.kv[local] = source_replica.kv[block_id]
                assert digest_bytes(block_digest, target_replica.kv, [local]) == announced
                target.apply(Deliver("a", index, 1))
        if frame.tokens:
            target.apply(Seed("a", [ChoiceToken(e.choice, e.token) for e in frame.tokens]))
    completions = {"a": Completion()}
    while completions["a"].ended is None:
        collect(target.step(), completions)
    alone = generate(source, [request("alone", PROMPTS[0])])[0].token_ids()
    assert completions["a"].token_ids() == alone
    if kv == "auto":
        assert alone == truths[0]


@pytest.mark.parametrize("kv", ["auto", "int8"])
def test_a_pool_of_latents_is_described_and_read_by_a_transport(kv: str, card: ModelCard) -> None:
    """One digest per layer and block, of the one plane and the one head that there is."""
    _, replica = load(card, kv=kv)
    num_blocks, *shape = replica.kv.shape
    assert shape[1:3] == [1, 1]
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(0, 100, replica.kv.shape, generator=generator).to(replica.kv.dtype)
    generations = torch.zeros(num_blocks, dtype=torch.int64)
    network = LoopbackNetwork()
    exporter = LoopbackTransport(LocalPool(source, generations), "p", network=network)
    pool = LocalPool(replica.kv, generations)
    pool.check_peer(exporter.describe(), "loopback")
    assert len(digest_bytes(block_digest, source, [0, 3])) == 2 * shape[0] * 8
