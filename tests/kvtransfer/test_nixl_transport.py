"""Two real processes over NIXL: what a reader sees when all is well, and when the peer is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from msgspec import structs

from cluster.errors import PairingMismatch, TransferFailed
from cluster.home import kernels_folder
from cluster.identity import new_incarnation
from cluster.kv_peer import KvPeer
from kernels.cpu.native_library import native_library, open_library
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.local_pool import LocalPool
from kvtransfer.nixl_library import nixl_errors
from kvtransfer.nixl_transport import NixlTransport
from kvtransfer.read_job import ReadJob
from kvtransfer.selftest import SelftestPeer, run_selftest, selftest_peer
from kvtransfer.selftest_peer import BLOCK_SHAPE, Offer, random_pool
from kvtransfer.transfer_agent import TransferAgent
from tests.kvtransfer.kv_blocks import LIMIT_S, collect, same_bits, small_pool, wait_until

NUM_BLOCKS = 256


@pytest.fixture(scope="module")
def peer() -> Iterator[SelftestPeer]:
    """One process that exports 256 blocks, for the tests that do it no harm."""
    with selftest_peer(NUM_BLOCKS) as process:
        yield process


def empty_pool(num_blocks: int = NUM_BLOCKS) -> LocalPool:
    blocks = torch.zeros((num_blocks, *BLOCK_SHAPE), dtype=torch.bfloat16)
    return LocalPool(blocks, torch.zeros(num_blocks, dtype=torch.int64))


@pytest.fixture
def pool() -> LocalPool:
    return empty_pool()


@pytest.fixture
def reader(pool: LocalPool) -> Iterator[BlockReader]:
    reader = BlockReader(NixlTransport(pool, new_incarnation()), pool, block_digest, patience_s=5.0)
    yield reader
    reader.close()


def job_of(offer: Offer, num_blocks: int, *, request_id: str = "r") -> ReadJob:
    return ReadJob(
        request_id=request_id,
        incarnation=offer.incarnation,
        span=offer.span(range(num_blocks)),
        local_block_ids=range(num_blocks),
    )


def with_rank(peer: KvPeer, **change: object) -> KvPeer:
    """The same pool, its only rank changed."""
    return replace(peer, ranks=(replace(peer.ranks[0], **change),))


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_256_blocks_arrive_verified_from_another_process(
    peer: SelftestPeer, reader: BlockReader, pool: LocalPool
) -> None:
    reader.connect(peer.offer.incarnation, peer.offer.peer)
    reader.submit(job_of(peer.offer, NUM_BLOCKS))
    assert reader.busy and reader.has_reads("r")
    (result,) = collect(reader, 1)
    assert result.error == ""
    assert result.verified == (range(NUM_BLOCKS),)
    assert result.num_bytes == NUM_BLOCKS * 368_640
    assert same_bits(pool.blocks, random_pool(NUM_BLOCKS, seed=0).blocks)
    assert not reader.busy and not reader.has_reads("r")
    assert reader.transport_in_use.startswith(("nixl/UCX shared memory (", "nixl/UCX tcp ("))


def test_the_words_for_the_transport_follow_what_ucx_took(
    peer: SelftestPeer, pool: LocalPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    reader = BlockReader(NixlTransport(pool, new_incarnation()), pool, block_digest)
    reader.connect(peer.offer.incarnation, peer.offer.peer)
    reader.submit(job_of(peer.offer, 2))
    assert collect(reader, 1)[0].error == ""
    assert reader.transport_in_use.startswith("nixl/UCX tcp (")
    reader.close()


@pytest.mark.parametrize("tls", ["tcp,self,sm", "tcp,self"])
def test_a_reading_agent_without_a_progress_thread_is_brought_forward_by_its_reader(
    tls: str, peer: SelftestPeer, pool: LocalPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is with memory of a GPU."""
    monkeypatch.setenv("UCX_TLS", tls)
    made: list[bool] = []
    make = TransferAgent.__init__

    def without_thread(agent: TransferAgent, name: str, *, has_progress_thread: bool) -> None:
        made.append(has_progress_thread)
        make(agent, name, has_progress_thread=False)

    monkeypatch.setattr(TransferAgent, "__init__", without_thread)
    reader = BlockReader(NixlTransport(pool, new_incarnation()), pool, block_digest)
    reader.connect(peer.offer.incarnation, peer.offer.peer)
    for index in range(3):
        reader.submit(job_of(peer.offer, NUM_BLOCKS, request_id=f"r{index}"))
    assert [result.error for result in collect(reader, 3)] == ["", "", ""]
    assert made == [True]  # of host memory, a reading agent has the thread
    reader.close()


def test_jobs_of_several_requests_travel_side_by_side(
    peer: SelftestPeer, reader: BlockReader
) -> None:
    reader.connect(peer.offer.incarnation, peer.offer.peer)
    for index in range(8):
        job = job_of(peer.offer, 16, request_id=f"r{index}")
        reader.submit(replace(job, local_block_ids=range(index * 16, index * 16 + 16)))
    results = collect(reader, 8)
    assert {result.job.request_id for result in results} == {f"r{index}" for index in range(8)}
    assert all(result.error == "" for result in results)


def test_a_stale_generation_is_refused(peer: SelftestPeer, reader: BlockReader) -> None:
    job = job_of(peer.offer, 4)
    good = job.span.generations
    generations = [*good[:2], good[2] - 1, good[3]]
    reader.connect(peer.offer.incarnation, peer.offer.peer)
    reader.submit(replace(job, span=structs.replace(job.span, generations=generations)))
    (result,) = collect(reader, 1)
    assert "1 of 4 blocks" in result.error and "given to another sequence" in result.error
    assert result.verified == (range(0, 2), range(3, 4))


def test_bytes_that_do_not_match_their_digest_are_refused(
    peer: SelftestPeer, reader: BlockReader
) -> None:
    job = job_of(peer.offer, 4)
    reader.connect(peer.offer.incarnation, peer.offer.peer)
    digests = bytes([job.span.digests[0] ^ 1]) + job.span.digests[1:]
    reader.submit(replace(job, span=structs.replace(job.span, digests=digests)))
    (result,) = collect(reader, 1)
    assert "do not match their digests, read 2 times" in result.error
    assert result.verified == (range(1, 4),)
    assert result.num_bytes == 5 * 368_640


def test_descriptors_and_threads_stay_flat_over_200_transfers(
    peer: SelftestPeer, reader: BlockReader
) -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    reader.connect(peer.offer.incarnation, peer.offer.peer)
    reader.submit(job_of(peer.offer, 2))
    collect(reader, 1)
    before = held()
    for _ in range(200):
        reader.submit(job_of(peer.offer, 2))
        assert collect(reader, 1)[0].error == ""
    assert held() == before


def test_connecting_again_to_a_live_peer_costs_no_descriptor(
    peer: SelftestPeer, reader: BlockReader
) -> None:
    counts = []
    for _ in range(12):
        reader.connect(peer.offer.incarnation, peer.offer.peer)
        reader.submit(job_of(peer.offer, 1))
        assert collect(reader, 1)[0].error == ""
        counts.append(num_descriptors())
    assert max(counts[1:]) <= counts[0]


def test_closing_a_transport_returns_its_descriptors_and_threads(pool: LocalPool) -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/fd")) + threading.active_count()

    def use() -> None:
        transport = NixlTransport(pool, new_incarnation())
        transport.describe()
        transport.close()

    use()
    before = held()
    use()
    assert held() == before


@pytest.mark.parametrize("tls", ["tcp,self,sm", "tcp,self"])
def test_a_peer_killed_in_the_middle_of_a_transfer_fails_it_and_the_reader_lives(
    tls: str, pool: LocalPool, peer: SelftestPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCX_TLS", tls)
    transport = NixlTransport(pool, new_incarnation())
    reader = BlockReader(
        transport, pool, block_digest, patience_s=4 * LIMIT_S
    )  # nobody waits it out
    with selftest_peer(NUM_BLOCKS) as victim:
        reader.connect(victim.offer.incarnation, victim.offer.peer)
        for index in range(8):
            reader.submit(job_of(victim.offer, NUM_BLOCKS, request_id=f"r{index}"))
        wait_until(lambda: bool(pool.blocks[0].view(torch.int16).any()), "the first bytes")
        victim.process.kill()
        results = collect(reader, 8)
    assert any(result.error for result in results)
    reader.disconnect(victim.offer.incarnation)
    reader.connect(peer.offer.incarnation, peer.offer.peer)
    reader.submit(job_of(peer.offer, 8, request_id="next"))
    assert collect(reader, 1)[0].error == ""
    reader.close()


@pytest.mark.parametrize("tls", ["tcp,self,sm", "tcp,self"])
def test_a_reader_killed_in_the_middle_of_a_read_does_not_hurt_its_peer(
    tls: str, peer: SelftestPeer, reader: BlockReader
) -> None:
    offer = msgspec.json.encode(peer.offer)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.kvtransfer.reader_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "UCX_TLS": tls},
    ) as victim:
        assert victim.stdin is not None and victim.stdout is not None
        victim.stdin.write(offer + b"\n")
        victim.stdin.flush()
        assert victim.stdout.readline() == b"reading\n"
        victim.kill()
    reader.connect(peer.offer.incarnation, peer.offer.peer)
    for _ in range(3):
        reader.submit(job_of(peer.offer, NUM_BLOCKS))
        assert collect(reader, 1)[0].error == ""
    assert peer.process.poll() is None


@contextmanager
def sleeping_peer(reader: BlockReader) -> Iterator[SelftestPeer]:
    """A peer that the reader has read from, and that stands still then; woken and ended at exit."""
    with selftest_peer(NUM_BLOCKS) as sleeper:
        reader.connect(sleeper.offer.incarnation, sleeper.offer.peer)
        reader.submit(job_of(sleeper.offer, 1, request_id="first"))
        assert collect(reader, 1)[0].error == ""
        os.kill(sleeper.process.pid, signal.SIGSTOP)
        status = Path(f"/proc/{sleeper.process.pid}/status")
        wait_until(lambda: "T (stopped)" in status.read_text(), "the peer stands still")
        yield sleeper
        os.kill(sleeper.process.pid, signal.SIGCONT)
        assert sleeper.process.stdin is not None
        sleeper.process.stdin.close()
        sleeper.process.wait(timeout=LIMIT_S)  # it has had its chance to send


def test_a_peer_that_hangs_is_cut_off_and_its_late_bytes_land_nowhere(
    pool: LocalPool, peer: SelftestPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TCP, a stopped peer would answer a released read when it goes on: seen with 94 MB."""
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    reader = BlockReader(NixlTransport(pool, new_incarnation()), pool, block_digest, patience_s=0.5)
    with sleeping_peer(reader) as sleeper:
        pool.blocks.zero_()
        reader.submit(job_of(sleeper.offer, NUM_BLOCKS))
        (result,) = collect(reader, 1)
        assert "no answer from" in result.error
        at_result = pool.blocks.clone()
    assert same_bits(pool.blocks, at_result)
    reader.connect(peer.offer.incarnation, peer.offer.peer)
    reader.submit(job_of(peer.offer, 4, request_id="next"))
    assert collect(reader, 1)[0].error == ""
    reader.close()


def test_after_an_error_of_the_library_late_bytes_land_nowhere_either(
    pool: LocalPool, peer: SelftestPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library names the first error of many descriptors; the others are still under way."""
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    transport = NixlTransport(pool, new_incarnation())
    reader = BlockReader(transport, pool, block_digest)
    is_done, failure = TransferAgent.is_done, nixl_errors()[0]
    handles: list[int] = []

    def fails_once(agent: TransferAgent, handle: int) -> bool:
        if not handles:
            handles.append(handle)
        if handle == handles[0]:
            raise failure("one descriptor of many")
        return is_done(agent, handle)

    with sleeping_peer(reader) as sleeper:
        pool.blocks.zero_()
        monkeypatch.setattr(TransferAgent, "is_done", fails_once)
        reader.submit(job_of(sleeper.offer, NUM_BLOCKS))
        (result,) = collect(reader, 1)
        assert "one descriptor of many" in result.error
        reader.connect(peer.offer.incarnation, peer.offer.peer)
        reader.submit(job_of(peer.offer, NUM_BLOCKS, request_id="next"))
        assert collect(reader, 1)[0].error == ""
        pool.blocks.zero_()
    assert not pool.blocks.view(torch.int16).any()
    reader.close()


def test_a_restarted_peer_is_read_under_its_new_incarnation_and_the_old_one_leaves_nothing(
    peer: SelftestPeer, reader: BlockReader
) -> None:
    def read_from(offer: Offer) -> None:
        reader.connect(offer.incarnation, offer.peer)
        reader.submit(job_of(offer, 4))
        assert collect(reader, 1)[0].error == ""

    read_from(peer.offer)
    before = num_descriptors()
    for _ in range(2):
        with selftest_peer(4) as process:
            read_from(process.offer)
        reader.disconnect(process.offer.incarnation)
        wait_until(lambda: num_descriptors() <= before, "the sockets of the dead peer are closed")


def test_pools_of_unequal_blocks_are_refused_with_both_sizes(pool: LocalPool) -> None:
    transport = NixlTransport(pool, new_incarnation())
    other = NixlTransport(small_pool(4), new_incarnation())
    with pytest.raises(PairingMismatch, match="block_size_tokens is 4 there and 16 here"):
        transport.connect("other", other.describe())
    other.close()
    transport.close()


def test_addresses_outside_the_peers_registered_memory_are_refused(
    peer: SelftestPeer, pool: LocalPool
) -> None:
    transport = NixlTransport(pool, new_incarnation())
    too_many = replace(peer.offer.peer, blocks_each=NUM_BLOCKS * 1000)
    with pytest.raises(TransferFailed, match="not registered there"):
        transport.connect(peer.offer.incarnation, too_many)
    transport.connect(peer.offer.incarnation, peer.offer.peer)
    transport.close()


@pytest.mark.parametrize("metadata", [b"", b"garbage", b"\0" * 400])
def test_unreadable_metadata_is_an_error_not_a_crash(
    peer: SelftestPeer, pool: LocalPool, metadata: bytes
) -> None:
    transport = NixlTransport(pool, new_incarnation())
    with pytest.raises(TransferFailed, match="cannot connect"):
        transport.connect("p", with_rank(peer.offer.peer, agent_metadata=metadata))
    transport.close()


def test_metadata_of_another_agent_is_refused(peer: SelftestPeer, pool: LocalPool) -> None:
    transport = NixlTransport(pool, new_incarnation())
    with pytest.raises(TransferFailed, match="belongs to agent"):
        transport.connect("p", with_rank(peer.offer.peer, agent_name="somebody"))
    transport.close()


def test_the_environment_of_child_processes_stays_clean(pool: LocalPool) -> None:
    NixlTransport(pool, new_incarnation()).describe()
    assert not {"UCX_LOG_FILE", "UCX_PROTO_INFO", "NIXL_LOG_LEVEL"} & set(os.environ)


def test_the_self_test_reports_rate_and_transport() -> None:
    report = run_selftest(megabytes=4)
    assert native_library() is open_library(kernels_folder())  # digests as engines compute them
    assert report.num_bytes >= 4 * 2**20
    assert report.gb_per_s > 0 and report.handshake_ms > 0
    assert report.transport.startswith("nixl/UCX ")
