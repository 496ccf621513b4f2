"""Prompts that are pooled beside answers: random lives, each against what it is alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pytest
import torch

from cluster.models.pooling import Pooling, PoolingKind
from engine.contract.commands import Cancel, GenerateRequest, PrefillMode, Submit
from engine.contract.messages import Frame, RequestEnded
from engine.model.pooled_head import PooledHead
from engine.model.ragged_batch import RaggedBatch
from engine.process.fake_runner import FakeRunner, fake_logits
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import (
    VOCAB_SIZE,
    VirtualClock,
    check,
    expected_tokens,
    request,
    small_engine,
    small_replica,
    step,
)

LAST = Pooling(kind=PoolingKind.LAST, generates=True, normalizes=False)
MEAN = Pooling(kind=PoolingKind.MEAN, generates=True, normalizes=False)
KINDS = pytest.mark.parametrize("pooling", [LAST, MEAN], ids=["last", "mean"])


def pooling_engine(pooling: Pooling, clock: VirtualClock | None = None, **options: int) -> Engine:
    replica = replace(small_replica(), pooled_head=PooledHead(pooling))
    return small_engine(replica, clock=clock, **options)


def wanted(name: str, token_ids: list[int], timeout_ms: float = 300_000.0) -> GenerateRequest:
    return request(name, token_ids, mode=PrefillMode.POOL, timeout_ms=timeout_ms)


def alone(body: GenerateRequest, pooling: Pooling) -> torch.Tensor:
    """Without blocks, chunks, or anybody else."""
    ends = range(1, len(body.token_ids) + 1) if pooling is MEAN else [len(body.token_ids)]
    rows = [-fake_logits(body.token_ids[:end], VOCAB_SIZE) for end in ends]
    return torch.stack(rows).double().mean(dim=0).float()


@dataclass
class Lives:
    """What was asked, and what came of it."""

    pooling: Pooling
    bodies: dict[str, GenerateRequest] = field(default_factory=dict)
    pooled: dict[str, torch.Tensor] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    ended: dict[str, RequestEnded] = field(default_factory=dict)

    def take(self, frame: Frame) -> None:
        for each in frame.pooled:
            assert each.request_id not in self.pooled
            values = np.frombuffer(each.values, "<f4").copy()
            self.pooled[each.request_id] = torch.from_numpy(values)
        for event in frame.tokens:
            self.tokens.setdefault(event.request_id, []).append(event.token.token_id)
        for end in frame.ended:
            assert end.request_id not in self.ended
            self.ended[end.request_id] = end

    def check_all(self) -> None:
        assert self.ended.keys() == self.bodies.keys()
        for name, body in self.bodies.items():
            if self.ended[name].error_code:
                assert name not in self.pooled
            elif body.mode is PrefillMode.POOL:
                torch.testing.assert_close(self.pooled[name], alone(body, self.pooling))
                assert name not in self.tokens and not self.ended[name].usage.completion_tokens
            else:
                assert self.tokens[name] == expected_tokens(body)


@KINDS
@pytest.mark.parametrize("seed", range(12))
def test_random_lives_end_as_they_would_alone(pooling: Pooling, seed: int) -> None:
    """Few blocks, short steps, prompts that begin alike; answers that grow take blocks away."""
    chance, clock = random.Random(seed), VirtualClock()
    engine, lives = pooling_engine(pooling, clock), Lives(pooling)
    for number in range(120):
        if chance.random() < 0.35:
            length = chance.randint(1, 9)
            token_ids = [chance.choice((1, 2)) for _ in range(length)]
            if chance.random() < 0.6:
                body = wanted(f"p{number}", token_ids, timeout_ms=chance.choice((50.0, 1e6)))
            else:
                body = request(f"t{number}", token_ids, max_tokens=chance.randint(1, 6))
            lives.bodies[body.request_id] = body
            engine.apply(Submit(body))
        if lives.bodies and chance.random() < 0.05:
            engine.apply(Cancel(chance.choice(list(lives.bodies))))
        lives.take(step(engine))
        clock.now_s += 0.001 * chance.randint(0, 20)
    while not engine.is_idle:
        lives.take(step(engine))
    lives.check_all()
    assert sum(not end.error_code for end in lives.ended.values()) > 10


@KINDS
def test_one_that_loses_its_blocks_goes_on_with_what_it_had(pooling: Pooling) -> None:
    """An answer grows until the pool is full: the youngest, a prompt in the middle, starts over."""
    engine, lives = pooling_engine(pooling, max_batch_tokens=2), Lives(pooling)
    for body in (request("t", [1, 2, 1], max_tokens=9), wanted("p", [2, 1, 2, 2, 1, 1, 2])):
        lives.bodies[body.request_id] = body
        engine.apply(Submit(body))
    while not engine.is_idle:
        lives.take(step(engine))
    lives.check_all()
    assert engine._meter.num_preemptions > 0


@KINDS
def test_what_is_cached_is_used_where_it_may_be(pooling: Pooling) -> None:
    engine, lives = pooling_engine(pooling), Lives(pooling)
    for name in ("a", "b"):
        lives.bodies[name] = wanted(name, [1, 2, 1, 1, 2])
        engine.apply(Submit(lives.bodies[name]))
        while not engine.is_idle:
            lives.take(step(engine))
    lives.check_all()
    assert lives.ended["b"].usage.cached_tokens == (0 if pooling is MEAN else 4)


def test_hidden_states_that_are_no_numbers_end_their_request_alone() -> None:
    class Strange(FakeRunner):
        def forward(self, batch: RaggedBatch) -> torch.Tensor:
            rows = super().forward(batch)
            if batch.is_pooled:
                rows[: len(rows) // 2] = float("nan")
            return rows

    replica = small_replica()
    strange = Strange(replica.kv, VOCAB_SIZE)
    replica = replace(replica, runner=strange, pooled_head=PooledHead(LAST))
    engine, lives = small_engine(replica), Lives(LAST)
    for name in ("a", "b"):
        engine.apply(Submit(wanted(name, [1, 2])))
    while not engine.is_idle:
        lives.take(engine.step())
        check(engine)
    assert lives.ended["a"].error_code == "internal_error"
    assert list(lives.pooled) == ["b"]


def test_a_step_that_fails_is_computed_again_request_by_request() -> None:
    class Picky(FakeRunner):
        def forward(self, batch: RaggedBatch) -> torch.Tensor:
            if batch.is_pooled and 6 in batch.token_ids.tolist():
                raise ValueError("six")
            return super().forward(batch)

    replica = small_replica()
    replica = replace(replica, runner=Picky(replica.kv, VOCAB_SIZE), pooled_head=PooledHead(LAST))
    engine, lives = small_engine(replica), Lives(LAST)
    bodies = {"good": wanted("good", [1, 2]), "bad": wanted("bad", [6])}
    bodies["text"] = request("text", [3], max_tokens=2)
    for body in bodies.values():
        engine.apply(Submit(body))
    while not engine.is_idle:
        lives.take(step(engine))
    assert lives.ended["bad"].error_code == "internal_error"
    torch.testing.assert_close(lives.pooled["good"], alone(bodies["good"], LAST))
    assert lives.tokens["text"] == expected_tokens(bodies["text"])


@pytest.mark.parametrize("dimensions", [0, -1])
def test_dimensions_that_cannot_be_are_refused(dimensions: int) -> None:
    engine = pooling_engine(LAST)
    body = msgspec.structs.replace(wanted("a", [1]), dimensions=dimensions)
    engine.apply(Submit(body))
    (end,) = engine.step().ended
    assert end.error_code == "invalid_request"
