"""Random interleavings of everything a server may say, against a solo run of each request."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from msgspec import structs

from cluster.generation import BegunChoice
from cluster.sampling import SamplingParams
from engine.contract.commands import (
    Cancel,
    ChoiceToken,
    Deliver,
    Finish,
    GenerateRequest,
    PrefillLocally,
    PrefillMode,
    ReleaseExport,
    Seed,
    Submit,
)
from engine.contract.messages import Frame
from engine.offline.queue import Completion, collect
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import (
    ROOT,
    VirtualClock,
    check,
    copy_kv,
    expected_tokens,
    small_engine,
    small_replica,
)


@dataclass
class World:
    """A prefill and a decode engine, the wire between them, and what was promised to whom."""

    chance: random.Random
    clock: VirtualClock = field(default_factory=VirtualClock)
    reading: set[str] = field(default_factory=set)
    bodies: dict[str, GenerateRequest] = field(default_factory=dict)
    completions: dict[str, Completion] = field(default_factory=dict)
    slots: dict[str, list[int]] = field(default_factory=dict)
    exports: dict[str, dict[int, int]] = field(default_factory=dict)
    finished: dict[tuple[str, int], int] = field(default_factory=dict)
    """(request, choice) -> the tokens it had when the router had seen enough of it."""
    wire: list[Deliver | Seed | PrefillLocally | Cancel | ReleaseExport] = field(
        default_factory=list
    )

    def __post_init__(self) -> None:
        self.make_replicas()
        options: dict[str, Any] = {
            "max_batch_tokens": self.chance.choice([2, 3, 8]),
            "max_num_seqs": 4,
        }
        options |= {"clock": self.clock} | self.options()
        self.prefill = small_engine(self.replicas[0], **options)
        self.decode = small_engine(
            self.replicas[1], **options, has_reads=lambda request_id: request_id in self.reading
        )

    def make_replicas(self) -> None:
        """Of eight blocks each."""
        self.replicas = [small_replica(8), small_replica(8)]

    def options(self) -> dict[str, Any]:
        """Of both engines, beside the plain world's."""
        return {}

    def pools(self) -> list[torch.Tensor]:
        """What reads go from, and to."""
        return [replica.kv for replica in self.replicas]

    def live(self, num_turns: int) -> None:
        """Something happens as many times; the invariants hold after each."""
        for _ in range(num_turns):
            actions = [self.step, self.step, self.step]
            actions += [self.submit] if len(self.bodies) < 12 else []
            actions += [self.arrive] * 2 if self.wire else []
            actions += [self.cancel] if self.bodies and self.chance.random() < 0.1 else []
            actions += [self.finish] if self.bodies and self.chance.random() < 0.4 else []
            actions += [self.release] if self.chance.random() < 0.3 else []
            self.chance.choice(actions)()
            check(self.prefill)
            check(self.decode)

    def submit(self) -> None:
        """A prompt over two tokens, LOCAL or REMOTE with its EXPORT twin; some are begun."""
        chance, request_id = self.chance, str(len(self.bodies))
        body = GenerateRequest(
            request_id=request_id,
            token_ids=[chance.randrange(2) for _ in range(chance.randrange(1, 8))],
            sampling=SamplingParams(
                max_tokens=chance.randrange(1, 6),
                n=chance.choice([1, 1, 2, 3]),
                seed=chance.randrange(3),
                frequency_penalty=chance.choice([0.0, 1.0]),
            ),
            cache_root=ROOT,
            mode=chance.choice([PrefillMode.LOCAL, PrefillMode.REMOTE]),
            timeout_ms=chance.choice([1e6, 1e6, 20.0]),
        )
        if chance.random() < 0.4:
            body = self.begun(body)
        self.bodies[request_id] = body
        self.completions[request_id] = Completion()
        self.decode.apply(Submit(body))

    def begun(self, body: GenerateRequest) -> GenerateRequest:
        """The same, but some of its choices are over, and of the others there are tokens."""
        choices = [choice for choice in range(body.sampling.n) if self.chance.random() < 0.7]
        resume = [
            BegunChoice(
                c, expected_tokens(body, c)[: self.chance.randrange(body.sampling.max_tokens)]
            )
            for c in choices
        ]
        mode = PrefillMode.LOCAL if len(resume) > 1 else body.mode
        return structs.replace(body, resume=resume, mode=mode)

    def hand_over(self, frame: Frame) -> None:
        """A reservation starts the export of what is missing."""
        for reserved in frame.reserved:
            body = self.bodies[reserved.request_id]
            self.slots[reserved.request_id] = reserved.block_ids
            self.exports[reserved.request_id] = {}
            twin = GenerateRequest(
                request_id=body.request_id,
                token_ids=body.token_ids,
                sampling=body.sampling,
                cache_root=ROOT,
                mode=PrefillMode.EXPORT,
                resume=body.resume,
                first_block=reserved.first_block,
                timeout_ms=self.chance.choice([1e6, 30.0]),
            )
            self.prefill.apply(Submit(twin))

    def carry(self, frame: Frame) -> None:
        """What the prefill engine says, put on the wire; it may arrive in any order."""
        for prefilled in frame.prefilled:
            request_id = prefilled.request_id
            if self.decode.receiving_blocks(request_id) is None:
                continue  # an intake starts no read for a request that receives no more
            for index, block_id in enumerate(prefilled.span.block_ids, prefilled.span.first_index):
                self.exports[request_id][index] = block_id
                self.reading.add(request_id)
                self.wire.append(Deliver(request_id, index, 1))
        seeds: dict[str, list[ChoiceToken]] = {}
        for event in frame.tokens:
            seeds.setdefault(event.request_id, []).append(ChoiceToken(event.choice, event.token))
        self.wire += [Seed(request_id, tokens) for request_id, tokens in seeds.items()]
        for ended in frame.ended:
            if ended.error_code:
                self.wire.append(PrefillLocally(ended.request_id))

    def arrive(self) -> None:
        """One message of the wire; a block is read and verified first, as an intake would."""
        message = self.wire.pop(self.chance.randrange(len(self.wire)))
        if not isinstance(message, Deliver) or self.is_read(message):
            self.decode.apply(message)
        waiting = {item.request_id for item in self.wire if isinstance(item, Deliver)}
        self.reading &= waiting

    def is_read(self, message: Deliver) -> bool:
        """Copies the block if its source is still pinned."""
        request_id, index = message.request_id, message.first_index
        if self.prefill.table.get(request_id) is None:
            self.wire.append(PrefillLocally(request_id))
            return False
        pair = (self.exports[request_id][index], self.slots[request_id][index])
        copy_kv(*self.pools(), [pair])
        return True

    def release(self) -> None:
        """Exports whose request is over here, or only some that lost their reader."""
        for request in self.prefill.table:
            is_over = self.completions[request.request_id].ended is not None
            if is_over or self.chance.random() < 0.05:
                self.prefill.apply(ReleaseExport(request.request_id))
                self.wire.append(PrefillLocally(request.request_id))

    def cancel(self) -> None:
        """Somebody's caller leaves."""
        self.decode.apply(Cancel(self.chance.choice(list(self.bodies))))

    def finish(self) -> None:
        """The router has found a stop string in some choice; it may say so twice."""
        request_id = self.chance.choice(list(self.bodies))
        choice = self.chance.randrange(self.bodies[request_id].sampling.n)
        given = self.completions[request_id].token_ids(choice)
        if given:
            self.finished.setdefault((request_id, choice), len(given))
            self.decode.apply(Finish(request_id, [choice]))

    def step(self) -> None:
        """Both engines."""
        self.clock.now_s += 0.001
        self.carry(self.prefill.step())
        frame = self.decode.step()
        collect(frame, self.completions)
        self.hand_over(frame)

    def finished_choices(self, request_id: str) -> set[int]:
        return {choice for name, choice in self.finished if name == request_id}

    def is_done(self) -> bool:
        return all(completion.ended for completion in self.completions.values())


@pytest.mark.parametrize("seed", range(40))
def test_random_interleavings_end_every_request_rightly_and_leak_no_block(seed: int) -> None:
    world = World(random.Random(seed))
    world.live(120)
    end_and_compare(world)


def end_and_compare(world: World) -> None:
    """Everything that is under way ends; what came is right, and no block is left."""
    end_all(world)
    for request_id, completion in world.completions.items():
        compare(world.bodies[request_id], completion, world.finished_choices(request_id))
    for (request_id, choice), num_tokens in world.finished.items():
        assert len(world.completions[request_id].token_ids(choice)) == num_tokens


def end_all(world: World) -> None:
    """Steps until everything is over; no block is left."""
    for _ in range(400):
        if world.wire:
            world.arrive()
        world.step()
        world.release()
        if world.is_done() and not world.wire and world.prefill.is_idle:
            break
    assert world.is_done()
    world.step()
    for engine in (world.prefill, world.decode):
        _assert_empty(engine)


def _assert_empty(engine: Engine) -> None:
    check(engine)
    assert engine.placement.pool.leases == frozenset()
    assert engine.placement.pool.num_available == engine.placement.pool.num_blocks


def compare(body: GenerateRequest, completion: Completion, finished: set[int]) -> None:
    """Right to the last token when it succeeded, right as far as it came otherwise."""
    assert completion.ended is not None
    assert completion.ended.error_code in ("", "cancelled", "deadline_exceeded", "out_of_blocks")
    begun = {item.choice: len(item.token_ids) for item in body.resume}
    assert set(completion.tokens) <= set(body.choices)
    for choice in body.choices:
        given = completion.token_ids(choice)
        expected = expected_tokens(body, choice)[begun.get(choice, 0) :]
        assert given == expected[: len(given)]
        if not completion.ended.error_code and choice not in finished:
            assert given == expected
