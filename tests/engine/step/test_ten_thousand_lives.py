"""Ten thousand requests, each a life of its own: drafts that are right, wrong or either, grammars
whose masks are there at once or late, free ones that are bound from a word on, adapters, of which
two have room, preemption, cancellation, a finish from outside. What each got is what it gets alone,
and nothing is broken or left after any step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from msgspec import structs

from cluster.block_hash import cache_root
from cluster.engine_options import EngineOptions
from engine.contract.adapters import LoadAdapter
from engine.contract.commands import Cancel, Finish, GenerateRequest, Submit
from engine.model.ragged_batch import RaggedBatch
from engine.offline.queue import Completion, collect
from engine.process.fake_runner import FakeRunner
from engine.runner.model_runner import Replica
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step.engine import Engine
from tests.engine.sampling.grammars.late_masks import late_masks, now_and_then
from tests.engine.step.engine_scenario import BLOCK_SIZE, check, request, small_replica
from tests.engine.step.guessing import TickingClock, oracles
from tests.engine.step.test_adapting import ScriptedRanks
from tests.engine.step.tiny_grammars import (
    ADAPTERS,
    BOUND_BEHIND,
    EOS,
    FREE_TO_BOUND,
    GRAMMARS,
    TOKENS,
    adapted,
    expected_answer,
    tiny_tokenizer,
)

NUM_WORLDS, LIVES = 100, 100
NUM_BLOCKS = 12
PARAMS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 1.4, "top_k": 4},
    {"temperature": 0.8, "frequency_penalty": 0.6},
    {"temperature": 1.0, "logprobs": 1},
]


class AdaptingRunner(FakeRunner):
    """Of each row the logits as its adapter makes them."""

    ranks: ScriptedRanks

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        logits = super().forward(batch)
        if batch.adapters is not None:
            for row, slot in zip(logits, batch.adapters[batch.logit_rows].tolist(), strict=True):
                if slot:
                    row.copy_(adapted(row.clone(), self.ranks.placed[slot].digest))
        return logits


def adapting_replica(ranks: ScriptedRanks) -> Replica:
    target = small_replica(NUM_BLOCKS, EOS)
    runner = AdaptingRunner(target.kv, target.vocab_size)
    runner.ranks = ranks
    return replace(target, runner=runner, adapters=ranks)


class World:
    """One engine, and a hundred who come to it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.engine = Engine(
            adapting_replica(ScriptedRanks(num_lora_ranks=16)),
            EngineOptions(
                block_size_tokens=BLOCK_SIZE,
                max_batch_tokens=chance.choice([6, 16, 40]),
                max_num_seqs=chance.choice([3, 6]),
                prefix_cache=chance.random() < 0.7,
            ),
            clock=TickingClock(),
            grammars=GrammarCompiler(tiny_tokenizer),
            make_guesser=oracles(chance.choice([0.0, 0.2, 0.6]), seed),
        )
        for digest in ADAPTERS:
            self.engine.apply(LoadAdapter(digest=digest, root="", folder=digest, lora_rank=8))
        self.masks = late_masks(self.engine, now_and_then(chance, chance.choice([0.0, 0.1, 0.4])))
        self.expected: dict[str, list[list[int]]] = {}
        self.bodies: dict[str, GenerateRequest] = {}
        self.done: dict[str, Completion] = {}
        self.disturbed: set[str] = set()
        self.counts: Counter[str] = Counter()

    def live(self) -> None:
        """Until a hundred have come and gone."""
        while len(self.bodies) < LIVES or not all(each.ended for each in self.done.values()):
            alive = [name for name, each in self.done.items() if each.ended is None]
            if len(self.bodies) < LIVES and len(alive) < 9 and self.chance.random() < 0.6:
                self.submit()
            if alive and self.chance.random() < 0.05:
                self.disturb(self.chance.choice(alive))
            if self.chance.random() < 0.7:
                self.masks.arrive(self.chance.choice([1, None]))
            collect(self.engine.step(), self.done)
            check(self.engine)
        self.engine.step()
        assert self.engine.is_idle
        assert self.engine.placement.pool.leases == frozenset()
        assert self.engine.placement.pool.num_available == NUM_BLOCKS

    def submit(self) -> None:
        """One more; most follow a grammar, some an adapter, and most expect the right answer."""
        chance, name = self.chance, str(len(self.bodies))
        body = request(
            name,
            [chance.randrange(6) for _ in range(chance.randrange(1, 6))],
            max_tokens=chance.randrange(1, 11),
            seed=chance.randrange(50),
            n=chance.choice([1, 1, 1, 2]),
            grammar=chance.choice([None, *GRAMMARS[: chance.randrange(3, 7)], *FREE_TO_BOUND]),
            **chance.choice(PARAMS),
        )
        if digest := chance.choice(["", "", "", *ADAPTERS]):
            root = cache_root("tests", "", digest)
            body = structs.replace(body, adapter=digest, cache_root=root)
        self.expected[name] = [expected_answer(body, choice) for choice in body.choices]
        if chance.random() < 0.7:
            body = structs.replace(body, prediction=self.expected[name][0])
        self.bodies[name], self.done[name] = body, Completion()
        self.engine.apply(Submit(body))
        check(self.engine)

    def disturb(self, name: str) -> None:
        """Its caller leaves, or has seen enough of a choice."""
        self.disturbed.add(name)
        choice = self.chance.randrange(self.bodies[name].sampling.n)
        self.engine.apply(self.chance.choice([Cancel(name), Finish(name, [choice])]))
        check(self.engine)

    def letters(self, name: str) -> list[int]:
        """Of an answer's first choice, without its end."""
        return [token for token in self.done[name].token_ids() if token not in EOS]

    def compare(self) -> None:
        """Right to the last token, or as far as it came."""
        for name, body in self.bodies.items():
            found = self.done[name]
            assert found.ended is not None
            assert found.ended.error_code in ("", "cancelled"), found.ended.error_message
            for choice in range(body.sampling.n):
                expected, given = self.expected[name][choice], found.token_ids(choice)
                is_whole = name not in self.disturbed
                assert given == (expected if is_whole else expected[: len(given)]), (name, body)
            is_held = body.sampling.grammar is not None
            self.counts["grammar"] += is_held
            self.counts["tried"] += found.ended.draft_tokens * is_held
            self.counts["kept"] += found.ended.accepted_draft_tokens * is_held
            self.counts["cancelled"] += bool(found.ended.error_code)
            if is_held and body.sampling.grammar in FREE_TO_BOUND:
                word = BOUND_BEHIND[FREE_TO_BOUND.index(body.sampling.grammar)]
                self.counts["bound"] += word in "".join(TOKENS[i] for i in self.letters(name))
                self.counts["kept beside"] += found.ended.accepted_draft_tokens
            if body.adapter:
                self.counts["kept adapted"] += found.ended.accepted_draft_tokens
        self.counts["preempted"] += self.engine.load.now().num_preemptions


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Torch's others would wait for each other over seven numbers."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


MORE = [pytest.param(first, marks=pytest.mark.minutes) for first in range(30, NUM_WORLDS, 10)]
"""`make test-more` has them."""


@pytest.mark.parametrize("first", [0, 10, 20, *MORE])
def test_a_thousand_lives_end_rightly_and_leave_nothing_behind(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + 10):
        world = World(seed)
        world.live()
        world.compare()
        counts += world.counts
    assert counts["grammar"] > 500 and counts["cancelled"] > 10 and counts["preempted"] > 5
    assert 200 < counts["kept"] < counts["tried"] - 100
    assert counts["bound"] > 50 and counts["kept beside"] > 100 and counts["kept adapted"] > 100
