"""The life of a fetch, turn by turn, over the loopback transport and a clock that we set."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from msgspec import structs

from kernels.block_digest import block_digest
from kvtransfer.block_read import ReadTools
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackFaults, LoopbackNetwork, LoopbackTransport
from kvtransfer.read_job import ReadResult
from kvtransfer.reader_core import DISCONNECT_GRACE_S, ReaderCore
from kvtransfer.verification import Digest
from tests.kvtransfer.kv_blocks import announced, same_bits, small_pool

TIMEOUT_S = 10.0


@dataclass(slots=True)
class Faults(LoopbackFaults):
    """What the tests turn on."""

    held: bool = False
    failing: bool = False
    flips: int = 0
    """This many of the next reads have a byte flipped."""
    give_away: list[int] = field(default_factory=list)
    """Slots at the source that are given away right after the next read of bytes."""
    num_reads: int = 0

    def holds(self) -> bool:
        return self.held

    def fails(self) -> bool:
        return self.failing

    def after_blocks(self, source: LocalPool, target: LocalPool, local_ids: list[int]) -> None:
        self.num_reads += 1
        if self.flips:
            self.flips -= 1
            target.blocks[local_ids[0]].view(torch.uint8).view(-1)[7] ^= 1
        for slot in self.give_away:
            source.generations[slot] += 1
            source.blocks[slot].zero_()
        self.give_away = []


class Setup:
    """A source "p" of 16 blocks, a target of 16, and a loop between them."""

    def __init__(self, digest: Digest | None = block_digest, span_blocks: int = 4) -> None:
        self.now = 0.0
        self.network = LoopbackNetwork()
        self.source = small_pool(16, seed=1)
        self.target = small_pool(16)
        self.faults = Faults()
        self.exporter = LoopbackTransport(self.source, "p-agent", network=self.network)
        transport = LoopbackTransport(
            self.target, "d-agent", network=self.network, faults=self.faults
        )
        tools = ReadTools(
            transport=transport,
            blocks=self.target.blocks,
            block_bytes=self.target.block_bytes,
            digest=digest,
            span_blocks=span_blocks,
        )
        self.loop = ReaderCore(tools, timeout_s=TIMEOUT_S, clock=lambda: self.now)
        self.loop.connect("p", self.exporter.describe())

    def finish(self, num_results: int = 1, *, max_turns: int = 100) -> list[ReadResult]:
        results: list[ReadResult] = []
        for _ in range(max_turns):
            results += self.loop.turn()[0]
            if len(results) >= num_results:
                return results
        raise AssertionError(f"{len(results)} of {num_results} results after {max_turns} turns")


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_blocks_arrive_where_they_were_wanted_and_are_reported_by_sequence_index(
    setup: Setup,
) -> None:
    setup.loop.add(announced(setup.source, [3, 9, 4], [7, 0, 2], first_index=5))
    (result,) = setup.finish()
    assert result.error == ""
    assert result.verified == (range(5, 8),)
    assert result.num_bytes == 3 * setup.source.block_bytes
    assert same_bits(setup.target.blocks[[7, 0, 2]], setup.source.blocks[[3, 9, 4]])
    assert setup.loop.num_reads == 0


def test_a_flipped_byte_is_read_once_more_and_then_right(setup: Setup) -> None:
    setup.faults.flips = 1
    setup.loop.add(announced(setup.source, range(3), range(3)))
    (result,) = setup.finish()
    assert result.error == "" and result.verified == (range(0, 3),)
    assert setup.faults.num_reads == 2
    assert result.num_bytes == 4 * setup.source.block_bytes
    assert same_bits(setup.target.blocks[:3], setup.source.blocks[:3])


def test_a_block_that_is_wrong_twice_is_refused_and_the_others_are_kept(setup: Setup) -> None:
    setup.faults.flips = 2
    setup.loop.add(announced(setup.source, range(4), range(4)))
    (result,) = setup.finish()
    assert "1 of 4 blocks from p do not match their digests, read 2 times" in result.error
    assert result.verified == (range(1, 4),)


def test_a_stale_generation_is_refused_without_reading_again(setup: Setup) -> None:
    job = announced(setup.source, range(4), range(4))
    setup.source.generations[2] += 1
    setup.source.blocks[2].zero_()
    setup.loop.add(job)
    (result,) = setup.finish()
    assert "1 of 4 blocks from p were given to another sequence" in result.error
    assert result.verified == (range(0, 2), range(3, 4))
    assert setup.faults.num_reads == 1


def test_a_slot_given_away_between_bytes_and_generations_is_refused(setup: Setup) -> None:
    setup.faults.give_away = [1]
    setup.loop.add(announced(setup.source, range(3), range(3)))
    (result,) = setup.finish()
    assert "given to another sequence" in result.error
    assert result.verified == (range(0, 1), range(2, 3))


def test_generations_are_checked_even_when_digests_are_not() -> None:
    setup = Setup(digest=None)
    setup.faults.give_away = [0]
    setup.loop.add(announced(setup.source, range(2), range(2)))
    (result,) = setup.finish()
    assert result.verified == (range(1, 2),)


def test_a_long_job_is_read_in_spans(setup: Setup) -> None:
    setup.loop.add(announced(setup.source, range(16), range(15, -1, -1)))
    (result,) = setup.finish()
    assert result.error == "" and setup.faults.num_reads == 4
    assert same_bits(setup.target.blocks.flip(0), setup.source.blocks)


def test_a_failing_read_ends_the_job_with_what_failed(setup: Setup) -> None:
    setup.faults.failing = True
    setup.loop.add(announced(setup.source, range(2), range(2)))
    (result,) = setup.finish()
    assert result.error == "loopback read failed on purpose" and result.verified == ()


def test_a_peer_that_died_fails_the_job_and_the_next_peer_works(setup: Setup) -> None:
    job = announced(setup.source, range(2), range(2))
    peer = setup.exporter.describe()
    setup.exporter.close()
    setup.loop.add(job)
    assert "is gone" in setup.finish()[0].error
    reborn = LoopbackTransport(setup.source, "p2-agent", network=setup.network)
    assert reborn.describe().agent_name != peer.agent_name
    setup.loop.disconnect("p")
    setup.loop.connect("p2", reborn.describe())
    setup.loop.add(replace(job, incarnation="p2"))
    assert setup.finish()[0].error == ""


def test_a_cancelled_job_reports_only_when_nothing_is_in_flight(setup: Setup) -> None:
    setup.faults.held = True
    setup.loop.add(announced(setup.source, range(8), range(8)))
    setup.loop.turn()
    setup.loop.cancel("r")
    for _ in range(5):
        assert setup.loop.turn()[0] == []
    setup.faults.held = False
    (result,) = setup.finish()
    assert result.error == "cancelled" and result.verified == ()
    before = setup.target.blocks.clone()
    setup.loop.turn()
    assert same_bits(setup.target.blocks, before)


def test_a_hanging_peer_is_cut_off_at_the_deadline_and_nothing_lands_afterwards(
    setup: Setup,
) -> None:
    setup.faults.held = True
    setup.loop.add(announced(setup.source, range(4), range(4)))
    setup.loop.turn()
    setup.now = TIMEOUT_S - 0.1
    assert setup.loop.turn()[0] == []
    setup.now = TIMEOUT_S
    (result,) = setup.finish()
    assert result.error == "no answer from p within 10.0 s"
    setup.faults.held = False
    setup.loop.turn()
    assert not setup.target.blocks.view(torch.int16).any()


def test_after_a_cut_the_same_peer_must_be_connected_again(setup: Setup) -> None:
    setup.faults.held = True
    job = announced(setup.source, range(4), range(4))
    setup.loop.add(job)
    setup.loop.turn()
    setup.now = TIMEOUT_S
    setup.finish()
    setup.faults.held = False
    setup.loop.add(job)
    assert setup.finish()[0].error == "no connection to p; connect first"
    setup.loop.connect("p", setup.exporter.describe())
    setup.loop.add(job)
    assert setup.finish()[0].error == ""


def test_jobs_of_a_peer_that_is_gone_end_within_the_grace(setup: Setup) -> None:
    setup.faults.held = True
    setup.loop.add(announced(setup.source, range(4), range(4)))
    setup.loop.turn()
    setup.loop.disconnect("p")
    assert setup.loop.turn()[0] == []
    setup.now = DISCONNECT_GRACE_S
    assert setup.finish()[0].error == "p is gone"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"span": {"generations": [1]}}, "malformed announcement: 2 blocks with 1 generations"),
        ({"span": {"digests": b""}}, "0 bytes of digests for 2 blocks"),
        ({"span": {"digests": b"\0" * 16}}, "bytes of digests for 2 blocks"),
        ({"span": {"digests": b"\0" * 17}}, "malformed announcement: 2 blocks with 2 generations"),
        ({"span": {"block_ids": [0, 16]}}, "remote block ids reach from 0 to 16; that pool has 16"),
        ({"span": {"block_ids": [0, 2**32 - 1]}}, "remote block ids reach from 0 to 4294967295"),
        ({"local_block_ids": [0]}, "2 blocks into 1 slots"),
        ({"local_block_ids": [0, 16]}, "local block ids reach from 0 to 16"),
        ({"local_block_ids": [3, 3]}, "a local block is named twice"),
        ({"incarnation": "nobody"}, "no connection to nobody"),
        (
            {"span": {"block_ids": [], "generations": [], "digests": b""}, "local_block_ids": []},
            "at least one",
        ),
    ],
)
def test_a_wrong_announcement_is_that_jobs_error_and_nothing_else(
    setup: Setup, change: dict[str, Any], problem: str
) -> None:
    job = announced(setup.source, range(2), range(2))
    wrong = structs.replace(job.span, **change.get("span", {}))
    setup.loop.add(replace(job, **(change | {"span": wrong})))
    setup.loop.add(replace(job, request_id="good", local_block_ids=[8, 9]))
    results = {result.job.request_id: result for result in setup.finish(2)}
    assert problem in results["r"].error
    assert results["good"].error == ""


def test_a_digest_that_raises_ends_its_job_alone() -> None:
    def broken(pool: torch.Tensor, block_ids: object) -> torch.Tensor:
        raise RuntimeError("no kernel")

    setup = Setup(digest=broken)
    setup.loop.add(announced(setup.source, range(2), range(2)))
    assert setup.finish()[0].error == "internal error: RuntimeError"


def test_at_random_every_job_ends_once_and_what_is_verified_is_what_was_announced() -> None:
    rng = random.Random(7)
    for _ in range(150):
        setup = Setup(span_blocks=rng.choice([1, 3]))
        setup.faults.flips = rng.choice([0, 0, 1, 2, 5])
        jobs, truth = [], setup.source.blocks.clone()
        for name, base in (("a", 0), ("b", 8)):
            ids = rng.sample(range(16), 4)
            local = list(range(base, base + 4))
            jobs.append(announced(setup.source, ids, local, request_id=name, first_index=base))
            setup.loop.add(jobs[-1])
        results: dict[str, ReadResult] = {}
        for _ in range(60):
            event = rng.random()
            setup.faults.held = event < 0.3
            if event > 0.9:
                setup.faults.give_away = [rng.randrange(16)]
            if event > 0.97:
                setup.loop.cancel("a")
            for result in setup.loop.turn()[0]:
                assert result.job.request_id not in results
                results[result.job.request_id] = result
        assert set(results) == {"a", "b"}
        for job in jobs:
            result = results[job.request_id]
            indices = [index for run in result.verified for index in run]
            assert (len(indices) == 4) == (result.error == "")
            for index in indices:
                position = index - job.span.first_index
                assert same_bits(
                    setup.target.blocks[job.local_block_ids[position]],
                    truth[job.span.block_ids[position]],
                )
