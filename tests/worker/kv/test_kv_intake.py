"""The intake refuses what would write into somebody else's slots."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from cluster.block_span import BlockSpan
from engine.contract.commands import Cancel, Connect, Deliver, Disconnect, Fetch
from engine.contract.messages import Frame
from engine.process.extension import EngineParts
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_read import ReadTools
from kvtransfer.block_reader import BlockReader, ReaderDied
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackNetwork, LoopbackTransport
from kvtransfer.reader import Reader
from kvtransfer.reader_core import ReaderCore
from kvtransfer.verification import digest_bytes
from worker.kv.kv_intake import KvIntake

SHAPE = (8, 2, 2, 1, 4, 8)  # [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim]
PATIENCE_TURNS = 200_000


def with_a_thread(transport: LoopbackTransport, pool: LocalPool) -> Reader:
    return BlockReader(transport, pool, block_digest)


def turned_by_hand(
    transport: LoopbackTransport, pool: LocalPool, clock: Callable[[], float]
) -> Reader:
    tools = ReadTools(
        transport=transport,
        pool=pool,
        digest=block_digest,
        span_blocks=4,
    )
    return ReaderCore(tools, patience_s=10.0, clock=clock)


class Scene:
    """A source pool, an intake over another, and the engine's answer about request "a"."""

    def __init__(self, make_reader: Callable[..., Reader] = with_a_thread) -> None:
        network = LoopbackNetwork()
        self.source = LocalPool(torch.randn(SHAPE), torch.arange(8) + 1)
        self.target = LocalPool(torch.zeros(SHAPE), torch.zeros(8, dtype=torch.int64))
        self.slots: list[int] | None = [5, 6]
        parts = EngineParts(
            spec=None,
            kv=self.target.blocks,
            generations=self.target.generations,
            shares=(),
            num_homes=1,
            receiving_blocks=lambda request_id: self.slots if request_id == "a" else None,
        )
        self._exporting = LoopbackTransport(self.source, "source", network=network)
        transport = LoopbackTransport(self.target, "target", network=network)
        self.intake = KvIntake(parts, make_reader(transport, self.target), "loopback")
        self.intake.handle(Connect("p", self._exporting.describe()))

    def fetch(self, request_id: str, block_ids: list[int], *, spoil_from: int = 99) -> Fetch:
        digests = digest_bytes(block_digest, self.source.blocks, block_ids)
        size = len(digests) // len(block_ids)
        good = digests[: spoil_from * size]
        return Fetch(
            request_id=request_id,
            incarnation="p",
            span=BlockSpan(
                0,
                block_ids,
                self.source.generations[block_ids].tolist(),
                good + bytes(len(digests) - len(good)),
            ),
        )

    def turn_until_fetched(self) -> tuple[list, Frame]:
        delivered = []
        for _ in range(PATIENCE_TURNS):
            frame = Frame()
            delivered += self.intake.poll()
            self.intake.enrich(frame)
            if frame.fetched:
                return delivered, frame
        raise AssertionError("the intake did not answer")


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.intake.close()


def test_a_fetch_is_delivered_into_the_slots_of_its_request(scene):
    assert scene.intake.handle(scene.fetch("a", [2, 3]))
    assert scene.intake.has_reads("a")
    delivered, frame = scene.turn_until_fetched()
    assert delivered == [Deliver("a", 0, 2)]
    (fetched,) = frame.fetched
    assert (fetched.num_blocks, fetched.error) == (2, "")
    assert torch.equal(scene.target.blocks[[5, 6]], scene.source.blocks[[2, 3]])
    assert not scene.intake.has_reads("a")
    assert frame.kv_transport == "loopback"


def test_a_request_that_receives_nothing_any_more_is_not_read_for(scene):
    scene.slots = None
    scene.intake.handle(scene.fetch("a", [2, 3]))
    delivered, frame = scene.turn_until_fetched()
    assert delivered == []
    assert "does not receive" in frame.fetched[0].error
    assert not scene.target.blocks.any()


def test_more_blocks_than_the_prompt_has_are_refused(scene):
    scene.intake.handle(scene.fetch("a", [1, 2, 3]))
    _, frame = scene.turn_until_fetched()
    assert "block 2 was announced, the prompt has 2" in frame.fetched[0].error
    assert not scene.target.blocks.any()


def test_only_the_leading_verified_blocks_count(scene):
    scene.intake.handle(scene.fetch("a", [2, 3], spoil_from=1))
    delivered, frame = scene.turn_until_fetched()
    assert delivered == [Deliver("a", 0, 1)]
    assert frame.fetched[0].num_blocks == 1
    assert frame.fetched[0].error


def test_a_cancellation_is_seen_and_passed_on(scene):
    scene.intake.handle(scene.fetch("a", [2, 3]))
    assert not scene.intake.handle(Cancel("a"))
    _, frame = scene.turn_until_fetched()
    assert frame.fetched[0].request_id == "a"
    assert not scene.intake.has_reads("a")


def test_the_death_of_the_reading_thread_reaches_the_loop_with_the_next_poll(scene, monkeypatch):
    def fail(incarnation):
        raise MemoryError("nobody has thought of this")

    monkeypatch.setattr(scene.intake._reader._core, "disconnect", fail)
    scene.intake.handle(Disconnect("p"))
    with pytest.raises(ReaderDied, match="nobody has thought of this"):
        for _ in range(PATIENCE_TURNS):
            scene.intake.poll()


def test_an_intake_runs_turn_by_turn_on_a_clock_of_its_own_without_a_thread():
    """What a simulator needs: the core of the reader in the place of the reader."""
    now = [100.0]
    scene = Scene(lambda transport, pool: turned_by_hand(transport, pool, lambda: now[0]))
    scene.intake._clock = lambda: now[0]
    before = set(threading.enumerate())
    scene.intake.handle(scene.fetch("a", [2, 3]))
    assert scene.intake.has_reads("a") and scene.intake.busy
    delivered = []
    while not delivered:
        now[0] += 0.001
        delivered = scene.intake.poll()
    now[0] += 0.25
    frame = Frame()
    scene.intake.enrich(frame)
    assert delivered == [Deliver("a", 0, 2)] and not scene.intake.busy
    assert frame.fetched[0].frame_delay_ms == pytest.approx(250)
    assert frame.fetched[0].duration_ms == pytest.approx(1, abs=1.01)
    assert set(threading.enumerate()) <= before
    scene.intake.close()
