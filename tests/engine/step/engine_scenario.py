"""Small engines over the model-free runner, an oracle for their tokens, and a clock to turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cluster.block_hash import cache_root
from cluster.engine_options import EngineOptions
from cluster.kv_shape import KvShape
from cluster.sampling import SamplingParams
from engine.contract.commands import GenerateRequest, PrefillMode
from engine.contract.messages import Frame
from engine.offline.queue import Completion, collect
from engine.process.fake_runner import fake_logits, fake_replica
from engine.runner.model_runner import Replica
from engine.sampling.logits import SamplingRow
from engine.sampling.sampler import Sampler
from engine.step.drafting.draft import MakeGuesser
from engine.step.engine import Engine
from engine.step.requests.table import no_reads

BLOCK_SIZE = 2
VOCAB_SIZE = 7
ROOT = cache_root("tests")


class VirtualClock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def small_replica(num_blocks: int = 8, eos_token_ids: tuple[int, ...] = ()) -> Replica:
    """`num_blocks` blocks of two tokens, seven kinds of tokens."""
    return fake_replica(
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        vocab_size=VOCAB_SIZE,
        eos_token_ids=eos_token_ids,
        shape=KvShape(num_layers=1, num_planes=2, num_kv_heads=1, head_dim=2),
    )


def small_engine(
    replica: Replica | None = None,
    *,
    clock: VirtualClock | None = None,
    has_reads: Callable[[str], bool] = no_reads,
    make_guesser: MakeGuesser | None = None,
    **options: Any,
) -> Engine:
    """An engine whose options default to a small token budget."""
    given = {"block_size_tokens": BLOCK_SIZE, "max_batch_tokens": 4, "max_num_seqs": 4} | options
    return Engine(
        replica or small_replica(),
        EngineOptions(**given),
        clock=clock or VirtualClock(),
        has_reads=has_reads,
        make_guesser=make_guesser,
    )


def request(
    request_id: str,
    token_ids: list[int],
    *,
    max_tokens: int = 4,
    mode: PrefillMode = PrefillMode.LOCAL,
    first_block: int = 0,
    timeout_ms: float = 300_000.0,
    **sampling: Any,
) -> GenerateRequest:
    """Sampled with a fixed seed unless told otherwise."""
    return GenerateRequest(
        request_id=request_id,
        token_ids=token_ids,
        sampling=SamplingParams(**({"max_tokens": max_tokens, "seed": 5} | sampling)),
        cache_root=ROOT,
        mode=mode,
        first_block=first_block,
        timeout_ms=timeout_ms,
    )


def expected_tokens(body: GenerateRequest, choice: int = 0) -> list[int]:
    """What the request gives when it is alone in the world: no pool, no batch, no blocks."""
    sampler, token_ids = Sampler(()), list(body.token_ids)
    for _ in range(body.sampling.max_tokens):
        row = SamplingRow(
            logit_row=0,
            params=body.sampling,
            choice=choice,
            token_ids=token_ids,
            num_prompt=len(body.token_ids),
        )
        token = sampler.sample(fake_logits(token_ids, VOCAB_SIZE)[None], [row])[0]
        assert token is not None
        token_ids.append(token.token_id)
    return token_ids[len(body.token_ids) :]


def check(engine: Engine) -> None:
    """No invariant is broken."""
    assert engine.check_invariants() == []


def step(engine: Engine) -> Frame:
    """One step, and the invariants after it."""
    frame = engine.step()
    check(engine)
    return frame


def run_until_ended(engine: Engine, request_ids: list[str], max_steps: int = 500) -> Any:
    """Steps until all have ended; returns their completions by id."""
    completions = {request_id: Completion() for request_id in request_ids}
    for _ in range(max_steps):
        collect(step(engine), completions)
        if all(completion.ended for completion in completions.values()):
            return completions
    raise AssertionError(f"not ended after {max_steps} steps: {completions}")


def copy_kv(source: torch.Tensor, target: torch.Tensor, pairs: list[tuple[int, int]]) -> None:
    """What a transfer does: whole blocks, (source id, target id)."""
    for source_id, target_id in pairs:
        target[target_id] = source[source_id]
