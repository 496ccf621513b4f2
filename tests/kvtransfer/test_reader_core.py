"""The life of a fetch, turn by turn, over the loopback transport and a clock that we set."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from msgspec import structs

from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_read import ReadTools
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackFaults, LoopbackNetwork, LoopbackTransport
from kvtransfer.peer_link import DISCONNECT_GRACE_S, REST_S
from kvtransfer.read_job import ReadResult
from kvtransfer.reader_core import ReaderCore
from kvtransfer.verification import Digest
from tests.kvtransfer.kv_blocks import announced, same_bits, small_pool

PATIENCE_S = 10.0


@dataclass(slots=True)
class Faults(LoopbackFaults):
    """What the tests turn on."""

    held: bool = False
    breaking: bool = False
    refusing: bool = False
    flips: int = 0
    """This many of the next reads have a byte flipped."""
    give_away: list[int] = field(default_factory=list)
    """Slots at the source that are given away right after the next read of bytes."""
    num_reads: int = 0

    def num_landing(self, peer: str, num_under_way: int) -> int:
        return 0 if self.held else num_under_way

    def breaks(self, peer: str) -> bool:
        return self.breaking

    def refuses(self, peer: str) -> bool:
        return self.refusing

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
        self.transport = LoopbackTransport(
            self.target, "d-agent", network=self.network, faults=self.faults
        )
        tools = ReadTools(
            transport=self.transport,
            pool=self.target,
            digest=digest,
            span_blocks=span_blocks,
        )
        self.core = ReaderCore(tools, patience_s=PATIENCE_S, clock=lambda: self.now)
        self.core.connect("p", self.exporter.describe())

    def wait(self, seconds: float) -> list[ReadResult]:
        """Turn after turn, a tenth of a second each."""
        results: list[ReadResult] = []
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now += 0.1
            results += self.core.turn()[0]
        return results

    def finish(self, num_results: int = 1, *, max_turns: int = 100) -> list[ReadResult]:
        results: list[ReadResult] = []
        for _ in range(max_turns):
            results += self.core.turn()[0]
            if len(results) >= num_results:
                return results
        raise AssertionError(f"{len(results)} of {num_results} results after {max_turns} turns")


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_blocks_arrive_where_they_were_wanted_and_are_reported_by_sequence_index(
    setup: Setup,
) -> None:
    setup.core.submit(announced(setup.source, [3, 9, 4], [7, 0, 2], first_index=5))
    (result,) = setup.finish()
    assert result.error == ""
    assert result.verified == (range(5, 8),)
    assert result.num_bytes == 3 * setup.source.block_bytes
    assert same_bits(setup.target.blocks[[7, 0, 2]], setup.source.blocks[[3, 9, 4]])
    assert not setup.core.busy


def test_a_flipped_byte_is_read_once_more_and_then_right(setup: Setup) -> None:
    setup.faults.flips = 1
    setup.core.submit(announced(setup.source, range(3), range(3)))
    (result,) = setup.finish()
    assert result.error == "" and result.verified == (range(0, 3),)
    assert setup.faults.num_reads == 2
    assert result.num_bytes == 4 * setup.source.block_bytes
    assert same_bits(setup.target.blocks[:3], setup.source.blocks[:3])


def test_a_block_that_is_wrong_twice_is_refused_and_the_others_are_kept(setup: Setup) -> None:
    setup.faults.flips = 2
    setup.core.submit(announced(setup.source, range(4), range(4)))
    (result,) = setup.finish()
    assert "1 of 4 blocks from p do not match their digests, read 2 times" in result.error
    assert result.verified == (range(1, 4),)


def test_a_stale_generation_is_refused_without_reading_again(setup: Setup) -> None:
    job = announced(setup.source, range(4), range(4))
    setup.source.generations[2] += 1
    setup.source.blocks[2].zero_()
    setup.core.submit(job)
    (result,) = setup.finish()
    assert "1 of 4 blocks from p were given to another sequence" in result.error
    assert result.verified == (range(0, 2), range(3, 4))
    assert setup.faults.num_reads == 1


def test_a_slot_given_away_between_bytes_and_generations_is_refused(setup: Setup) -> None:
    setup.faults.give_away = [1]
    setup.core.submit(announced(setup.source, range(3), range(3)))
    (result,) = setup.finish()
    assert "given to another sequence" in result.error
    assert result.verified == (range(0, 1), range(2, 3))


def test_generations_are_checked_even_when_digests_are_not() -> None:
    setup = Setup(digest=None)
    setup.faults.give_away = [0]
    setup.core.submit(announced(setup.source, range(2), range(2)))
    (result,) = setup.finish()
    assert result.verified == (range(1, 2),)


def test_a_long_job_is_read_in_spans(setup: Setup) -> None:
    setup.core.submit(announced(setup.source, range(16), range(15, -1, -1)))
    (result,) = setup.finish()
    assert result.error == "" and setup.faults.num_reads == 4
    assert same_bits(setup.target.blocks.flip(0), setup.source.blocks)


def test_a_failing_read_ends_the_job_with_what_failed(setup: Setup) -> None:
    setup.faults.breaking = True
    setup.core.submit(announced(setup.source, range(2), range(2)))
    (result,) = setup.finish()
    assert result.error == "loopback read broke on purpose" and result.verified == ()


def test_a_connection_that_fails_later_is_the_error_of_the_job(setup: Setup) -> None:
    setup.faults.refusing = True
    setup.core.submit(announced(setup.source, range(2), range(2)))
    (result,) = setup.finish()
    assert "connection refused on purpose" in result.error and not setup.core.busy


def test_a_peer_that_died_fails_the_job_and_the_next_peer_works(setup: Setup) -> None:
    job = announced(setup.source, range(2), range(2))
    peer = setup.exporter.describe()
    setup.exporter.close()
    setup.core.submit(job)
    assert "is gone" in setup.finish()[0].error
    reborn = LoopbackTransport(setup.source, "p2-agent", network=setup.network)
    assert reborn.describe().ranks[0].agent_name != peer.ranks[0].agent_name
    setup.core.disconnect("p")
    setup.core.connect("p2", reborn.describe())
    setup.core.submit(replace(job, incarnation="p2"))
    assert setup.finish()[0].error == ""


def test_a_cancelled_job_reports_only_when_nothing_is_in_flight(setup: Setup) -> None:
    setup.faults.held = True
    setup.core.submit(announced(setup.source, range(8), range(8)))
    setup.core.turn()
    setup.core.cancel("r")
    for _ in range(5):
        assert setup.core.turn()[0] == []
    setup.faults.held = False
    (result,) = setup.finish()
    assert result.error == "cancelled" and result.verified == ()
    before = setup.target.blocks.clone()
    setup.core.turn()
    assert same_bits(setup.target.blocks, before)


def test_a_peer_without_progress_is_cut_off_and_nothing_lands_afterwards(setup: Setup) -> None:
    setup.faults.held = True
    setup.core.submit(announced(setup.source, range(4), range(4)))
    setup.core.turn()
    assert setup.wait(PATIENCE_S - 0.2) == []
    (result,) = setup.wait(0.4)
    assert result.error == "no answer from p within 10 s"
    setup.faults.held = False
    setup.core.turn()
    assert not setup.target.blocks.view(torch.int16).any()


def test_a_reader_that_was_held_up_itself_cuts_nobody_off(setup: Setup) -> None:
    setup.faults.held = True
    setup.core.submit(announced(setup.source, range(4), range(4)))
    setup.core.turn()
    setup.now += 100 * PATIENCE_S  # this process was stopped, or had no processor
    assert setup.core.turn()[0] == []
    setup.faults.held = False
    assert setup.finish()[0].error == ""


def test_a_peer_that_was_cut_off_rests_and_is_then_asked_again(setup: Setup) -> None:
    setup.faults.held = True
    job = announced(setup.source, range(4), range(4))
    setup.core.submit(job)
    setup.core.turn()
    setup.wait(PATIENCE_S + 0.2)
    setup.faults.held = False
    setup.core.submit(job)
    assert "p was cut off less than 1.0 s ago" in setup.finish()[0].error
    setup.now += REST_S
    setup.core.submit(job)
    assert setup.finish()[0].error == ""


def test_jobs_of_a_peer_that_is_gone_end_within_the_grace(setup: Setup) -> None:
    setup.faults.held = True
    setup.core.submit(announced(setup.source, range(4), range(4)))
    setup.core.turn()
    setup.core.disconnect("p")
    assert setup.core.turn()[0] == []
    assert setup.wait(DISCONNECT_GRACE_S + 0.2)[0].error == "p is gone"
    setup.core.submit(announced(setup.source, range(4), range(4)))
    assert setup.finish()[0].error == "no connection to p; connect first"


def test_a_read_that_its_request_has_given_up_ends_within_the_grace(setup: Setup) -> None:
    setup.faults.held = True
    setup.core.submit(announced(setup.source, range(4), range(4)))
    setup.core.turn()
    setup.wait(2.0)
    setup.core.abandon("r", "p")
    assert setup.wait(DISCONNECT_GRACE_S - 0.2) == []
    (result,) = setup.wait(0.4)
    assert result.error == "p was given up"
    setup.faults.held = False
    setup.core.turn()
    assert not setup.target.blocks.view(torch.int16).any()


def test_while_a_link_moves_a_read_that_was_given_up_lands_and_others_go_on(setup: Setup) -> None:
    setup.core.submit(announced(setup.source, range(4), range(4)))
    other = replace(announced(setup.source, range(4), range(4, 8)), request_id="other")
    setup.core.submit(other)
    setup.faults.held = True
    setup.core.turn()
    setup.core.abandon("r", "p")
    setup.wait(DISCONNECT_GRACE_S - 0.2)
    setup.faults.held = False
    results = {result.job.request_id: result for result in setup.finish(2)}
    assert results["r"].error == "p was given up"
    assert results["other"].error == "" and results["other"].verified == (range(0, 4),)


def test_a_peer_that_cannot_be_forgotten_costs_no_job(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(incarnation: str) -> None:
        raise RuntimeError("the library refuses")

    monkeypatch.setattr(setup.transport, "disconnect", fail)
    setup.core.disconnect("p")
    setup.core.connect("q", setup.exporter.describe())
    setup.core.submit(replace(announced(setup.source, [0], [0]), incarnation="q"))
    assert setup.finish()[0].error == ""


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
    setup.core.submit(replace(job, **(change | {"span": wrong})))
    setup.core.submit(replace(job, request_id="good", local_block_ids=[8, 9]))
    results = {result.job.request_id: result for result in setup.finish(2)}
    assert problem in results["r"].error
    assert results["good"].error == ""


def test_a_digest_that_raises_ends_its_job_alone() -> None:
    def broken(pool: torch.Tensor, block_ids: object) -> torch.Tensor:
        raise RuntimeError("no kernel")

    setup = Setup(digest=broken)
    setup.core.submit(announced(setup.source, range(2), range(2)))
    assert setup.finish()[0].error == "internal error: RuntimeError"
