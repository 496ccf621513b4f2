"""Whom a decode worker has shaken hands with: never more than there are."""

import asyncio

import pytest

from cluster.errors import WorkerLost
from cluster.process.background import Background, nothing_needed
from cluster.worker_identity import WorkerIdentity
from engine.contract.commands import Connect, Disconnect
from tests.decode_worker.decode_bench import KEY, PAIRING
from tests.decode_worker.fake_dialer import FakeDialer
from worker.exchange.prefill_peers import PrefillPeers


class Desk:
    """Peers over a fake network, and what their engine was told."""

    def __init__(self) -> None:
        self.dialer = FakeDialer(PAIRING)
        self.told = []
        self.background = Background(nothing_needed)
        self.peers = PrefillPeers(
            WorkerIdentity(KEY, PAIRING), self.told.append, self.dialer, self.background
        )

    def incarnations(self, kind) -> list[str]:
        return [command.incarnation for command in self.told if isinstance(command, kind)]

    async def until(self, condition) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0)


@pytest.fixture
async def desk():
    desk = Desk()
    yield desk
    desk.peers.close()
    await desk.background.close()
    assert all(link.is_closed for link in desk.dialer.links.values() if link.is_dialled)


async def test_a_hundred_workers_that_came_and_left_quietly_leave_nothing_behind(desk):
    for number in range(100):
        target = desk.dialer.worker(f"pod-{number}", f"i{number}")
        peer = await desk.peers.connect(target)
        peer.link.die()
    await desk.until(lambda: len(desk.peers) == 0)
    names = [f"i{number}" for number in range(100)]
    assert sorted(desk.incarnations(Connect)) == sorted(names)
    assert sorted(desk.incarnations(Disconnect)) == sorted(names)
    await desk.until(lambda: all(link.is_closed for link in desk.dialer.links.values()))


async def test_a_worker_that_is_gone_is_met_again_by_the_next_request(desk):
    target = desk.dialer.worker("prefill-0", "i0")
    first = await desk.peers.connect(target)
    first.link.die()
    await desk.until(lambda: len(desk.peers) == 0)
    with pytest.raises(WorkerLost, match="nobody"):
        await desk.peers.connect(target)
    desk.dialer.worker("prefill-0", "i0")
    assert (await desk.peers.connect(target)).key == target.key


async def test_whoever_waits_for_a_handshake_hears_that_its_worker_was_forgotten(desk):
    target = desk.dialer.worker("prefill-0", "i0")
    waiting = asyncio.create_task(desk.peers.connect(target))
    await desk.until(lambda: len(desk.peers) == 1)
    desk.peers.forget(target.key)
    with pytest.raises(WorkerLost):
        await waiting


async def test_a_waiter_that_leaves_does_not_end_the_handshake_for_others(desk):
    target = desk.dialer.worker("prefill-0", "i0")
    impatient = asyncio.create_task(desk.peers.connect(target))
    patient = asyncio.create_task(desk.peers.connect(target))
    await desk.until(lambda: len(desk.peers) == 1)
    impatient.cancel()
    assert (await patient).key == target.key
    assert desk.incarnations(Connect) == ["i0"]
