"""Messages of strangers are received a few at a time, and nobody keeps a place for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cluster.errors import NotReady, SlowRequest
from cluster.process.background import cancel
from router.grpc_front import message_gate
from router.grpc_front.message_gate import MAX_WAITING, MessageGate


class Senders:
    """Peers that send when they are told to."""

    def __init__(self, gate: MessageGate) -> None:
        self.gate = gate
        self.asked: list[str] = []
        """Whose message was asked for, in order."""
        self.tasks: list[asyncio.Task[bytes]] = []

    async def begins(self, peer: str) -> tuple[asyncio.Task[bytes], asyncio.Future[bytes]]:
        """A message and what completes it."""
        message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def read() -> bytes:
            self.asked.append(peer)
            return await message

        self.tasks.append(asyncio.ensure_future(self.gate.receive(peer, read)))
        await turns()
        return self.tasks[-1], message


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def senders(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Senders]:
    monkeypatch.setattr(message_gate, "PATIENCE_S", 600.0)
    made = Senders(MessageGate(2, timeout_s=60.0))
    yield made
    await cancel([task for task in made.tasks if not task.done()])


async def test_no_more_are_asked_for_than_there_are_places(senders: Senders) -> None:
    first, _ = await senders.begins("a")
    _, second = await senders.begins("b")
    third, message = await senders.begins("c")
    assert senders.asked == ["a", "b"]
    second.set_result(b"whole")
    await turns()
    assert senders.asked == ["a", "b", "c"]
    message.set_result(b"too")
    assert await third == b"too"
    assert not first.done()
    assert senders.gate.num_receiving == 1


async def test_the_oldest_of_the_peer_with_most_places_gives_way(senders: Senders) -> None:
    oldest, _ = await senders.begins("greedy")
    younger, _ = await senders.begins("greedy")
    await senders.begins("modest")
    with pytest.raises(SlowRequest):
        await oldest
    await turns()
    assert senders.asked == ["greedy", "greedy", "modest"]
    assert not younger.done()


async def test_among_equals_the_oldest_gives_way_when_its_patience_is_over(
    senders: Senders, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest, _ = await senders.begins("a")
    await senders.begins("b")
    late, _ = await senders.begins("c")
    assert not oldest.done()
    monkeypatch.setattr(message_gate, "PATIENCE_S", 0.0)
    await senders.begins("d")
    with pytest.raises(SlowRequest):
        await oldest
    await turns()
    assert senders.asked[:3] == ["a", "b", "c"]
    assert not late.done()


async def test_a_message_has_so_long_and_no_longer() -> None:
    gate = MessageGate(1, timeout_s=0.01)
    with pytest.raises(SlowRequest, match="within 0.01 s"):
        await gate.receive("a", asyncio.Event().wait)
    assert gate.num_receiving == 0


async def test_the_line_is_bounded_and_who_fills_it_is_refused(senders: Senders) -> None:
    await senders.begins("a")
    await senders.begins("b")
    crowd = [(await senders.begins("b"))[0] for _ in range(MAX_WAITING)]
    modest, message = await senders.begins("c")
    refused = [task for task in crowd if task.done()]
    assert len(refused) == 1
    with pytest.raises(NotReady):
        await refused[0]
    senders.tasks[0].cancel()  # a place is free: for who has none
    await turns()
    message.set_result(b"came in")
    assert await modest == b"came in"


async def test_who_leaves_gives_its_place_back_wherever_it_stands(senders: Senders) -> None:
    for peer in "abcd":
        await senders.begins(peer)
    for task in senders.tasks:
        task.cancel()
    await turns()
    assert senders.gate.num_receiving == 0
    _, message = await senders.begins("e")
    message.set_result(b"whole")
    assert await senders.tasks[-1] == b"whole"
