"""The reader's face to the engine loop, over the loopback transport."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import structs

from cluster.errors import ConfigError
from cluster.kv_peer import KvPeer, KvRank
from cluster.process.own_lateness import SeenTime
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import STANDSTILL_S, BlockReader, ReaderDied
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackFaults, LoopbackNetwork, LoopbackTransport
from tests.kvtransfer.kv_blocks import announced, collect, same_bits, small_pool, wait_until


@dataclass
class Gate(LoopbackFaults):
    """Reads wait while it is shut."""

    is_open: threading.Event = field(default_factory=threading.Event)
    num_polls: int = 0

    def num_landing(self, peer: str, num_under_way: int) -> int:
        self.num_polls += 1
        return num_under_way if self.is_open.is_set() else 0


class Setup:
    """A source "p" of 16 blocks and a reader with 16."""

    def __init__(self) -> None:
        network = LoopbackNetwork()
        self.source, self.target, self.gate = small_pool(16, seed=2), small_pool(16), Gate()
        self.gate.is_open.set()
        self.notified = threading.Event()
        self.exporter = LoopbackTransport(self.source, "p-agent", network=network)
        transport = LoopbackTransport(self.target, "d-agent", network=network, faults=self.gate)
        self.reader = BlockReader(
            transport, self.target, block_digest, patience_s=5.0, notify=self.notified.set
        )
        self.reader.connect("p", self.exporter.describe())


def with_rank(peer: KvPeer, **change: Any) -> tuple[KvRank]:
    """The only rank, changed."""
    return (replace(peer.ranks[0], **change),)


@pytest.fixture
def setup() -> Iterator[Setup]:
    setup = Setup()
    yield setup
    setup.gate.is_open.set()
    setup.reader.close()


def test_a_job_ends_in_one_result_and_the_caller_is_notified(setup: Setup) -> None:
    setup.reader.submit(announced(setup.source, range(4), range(4)))
    assert setup.notified.wait(5.0)
    (result,) = collect(setup.reader, 1)
    assert result.error == "" and result.verified == (range(0, 4),)
    assert same_bits(setup.target.blocks[:4], setup.source.blocks[:4])
    assert not setup.reader.busy and setup.reader.poll() == []
    assert setup.reader.transport_in_use == "loopback"


def test_a_cancelled_request_is_held_until_its_reads_are_over(setup: Setup) -> None:
    setup.gate.is_open.clear()
    setup.reader.submit(announced(setup.source, range(4), range(4)))
    wait_until(lambda: setup.gate.num_polls > 0, "a read in flight")
    assert setup.reader.cancel("r") is True
    polls = setup.gate.num_polls
    wait_until(lambda: setup.gate.num_polls > polls + 3, "the reading thread saw the cancel")
    assert setup.reader.poll() == [] and setup.reader.has_reads("r")
    setup.gate.is_open.set()
    (result,) = collect(setup.reader, 1)
    assert result.error == "cancelled" and not setup.reader.has_reads("r")


def test_cancelling_a_request_without_jobs_holds_nothing(setup: Setup) -> None:
    assert setup.reader.cancel("unknown") is False
    assert not setup.reader.busy


def test_a_request_is_held_while_any_of_its_jobs_is(setup: Setup) -> None:
    setup.gate.is_open.clear()
    setup.reader.submit(announced(setup.source, [0], [0]))
    setup.reader.submit(announced(setup.source, [1], [1], first_index=1))
    setup.reader.submit(replace(announced(setup.source, [2], [2]), incarnation="nobody"))
    (failed,) = collect(setup.reader, 1)
    assert "no connection to nobody" in failed.error and setup.reader.has_reads("r")
    setup.gate.is_open.set()
    assert [result.error for result in collect(setup.reader, 2)] == ["", ""]
    assert not setup.reader.has_reads("r")


def test_closing_ends_every_job(setup: Setup) -> None:
    setup.gate.is_open.clear()
    setup.reader.submit(announced(setup.source, range(2), range(2)))
    wait_until(lambda: setup.gate.num_polls > 0, "a read in flight")
    setup.reader.close()
    (result,) = setup.reader.poll()
    assert result.error == "this worker is shutting down"
    assert not setup.reader.busy
    setup.reader.close()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda peer: {"ranks": with_rank(peer, block_bytes=99)},
            "block_bytes is 99 there",
        ),
        (lambda peer: {"ranks": with_rank(peer, num_heads=4)}, "4 KV heads from 0 on there"),
        (lambda peer: {"ranks": with_rank(peer, first_head=1)}, "3 KV heads from 1 on there"),
        (lambda peer: {"ranks": with_rank(peer, num_heads=0)}, "0 KV heads from 0 on there"),
        (
            lambda peer: {"ranks": with_rank(peer, first_head=1, num_heads=2, block_bytes=512)},
            "none of them has KV head 0",
        ),
        (lambda peer: {"ranks": peer.ranks * 1025}, "a KV pool of 1025 ranks cannot be read"),
        (lambda peer: {"block_size_tokens": 0}, "block_size_tokens is 0 there and 4 here"),
        (lambda peer: {"block_size_tokens": 8}, "block_size_tokens is 8 there and 4 here"),
        (lambda peer: {"transport": "nixl"}, "transport is 'nixl' there and 'loopback' here"),
        (lambda peer: {"ranks": ()}, "a KV pool of 0 ranks cannot be read"),
    ],
)
def test_a_pool_that_does_not_fit_is_the_error_of_its_jobs(
    setup: Setup, change: Callable[[KvPeer], dict[str, Any]], problem: str
) -> None:
    peer = setup.exporter.describe()
    setup.reader.connect("q", replace(peer, **change(peer)))
    setup.reader.submit(replace(announced(setup.source, [0], [0]), incarnation="q"))
    (result,) = collect(setup.reader, 1)
    assert problem in result.error


def test_the_death_of_the_reading_thread_is_raised_at_the_next_poll_without_any_job(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(incarnation: str, peer: KvPeer) -> None:
        raise MemoryError("a bug that nobody has thought of")

    monkeypatch.setattr(setup.reader._core, "connect", fail)
    setup.reader.connect("q", setup.exporter.describe())
    assert setup.notified.wait(5.0)
    with pytest.raises(ReaderDied, match="nobody has thought of"):
        setup.reader.poll()


def test_an_abort_that_fails_ends_the_thread_as_bytes_may_still_land(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(incarnation: str) -> None:
        raise RuntimeError("the agent does not end")

    monkeypatch.setattr(setup.reader._transport, "abort", fail)
    monkeypatch.setattr(setup.gate, "breaks", lambda peer: True)
    setup.reader.submit(announced(setup.source, [0], [0]))
    assert setup.notified.wait(5.0)
    with pytest.raises(ReaderDied, match="the agent does not end"):
        setup.reader.poll()
    assert setup.reader.has_reads("r")


def test_a_reading_thread_that_stands_still_with_jobs_to_do_is_found(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_free = threading.Event()
    monkeypatch.setattr(setup.gate, "breaks", lambda peer: is_free.wait() and False)
    now = [0.0]
    monkeypatch.setattr(setup.reader, "_patience", SeenTime(lambda: now[0]))
    setup.reader.submit(announced(setup.source, [0], [0]))
    with pytest.raises(ReaderDied, match="has stood still for 15 s"):
        while now[0] < 10 * STANDSTILL_S:
            now[0] += 0.5
            setup.reader.poll()
    is_free.set()


def test_memory_of_a_gpu_is_never_read_without_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPool, "memory", "VRAM")
    pool = small_pool(2)
    with pytest.raises(ConfigError, match="cannot be read without their digests"):
        BlockReader(LoopbackTransport(pool, "d"), pool, None)


def test_connecting_the_same_peer_again_disturbs_no_read(setup: Setup) -> None:
    setup.gate.is_open.clear()
    setup.reader.submit(announced(setup.source, range(2), range(2)))
    wait_until(lambda: setup.gate.num_polls > 0, "a read in flight")
    setup.reader.connect("p", setup.exporter.describe())
    setup.gate.is_open.set()
    assert collect(setup.reader, 1)[0].error == ""


def test_the_reading_thread_outlives_an_impossible_command(setup: Setup) -> None:
    pool = LocalPool(setup.target.blocks, setup.target.generations)
    job = announced(pool, [0], [1])
    broken = structs.replace(job.span, generations=["x"])
    setup.reader.submit(replace(job, span=broken))
    assert collect(setup.reader, 1)[0].error != ""
    setup.reader.submit(announced(setup.source, [0], [1]))
    assert collect(setup.reader, 1)[0].error == ""
