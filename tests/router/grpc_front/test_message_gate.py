"""Messages of strangers are received a few at a time, and nobody keeps a place for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster.errors import NotReady, SlowRequest
from cluster.process.background import cancel
from router.grpc_front.caller import Caller
from router.grpc_front.message_gate import GateLimits, MessageGate
from tests.manual_clock import ManualClock

MAX_WAITING = 20
FOREVER_S = 600.0
LOOK_S = 0.05


def gate_of(
    num_places: int,
    *,
    patience_s: float = FOREVER_S,
    timeout_s: float = FOREVER_S,
    max_known: int = 0,
) -> MessageGate:
    return MessageGate(
        GateLimits(
            max_receiving=num_places,
            max_waiting=MAX_WAITING,
            timeout_s=timeout_s,
            patience_s=patience_s,
            max_known=max_known,
        )
    )


class Senders:
    """Peers that send when they are told to."""

    def __init__(self, gate: MessageGate) -> None:
        self.gate = gate
        self.asked: list[str] = []
        """Whose message was asked for, in order."""
        self.tasks: list[asyncio.Task[bytes]] = []

    async def begins(self, peer: str) -> tuple[asyncio.Task[bytes], asyncio.Future[bytes]]:
        """A message and what completes it. `peer` as address:port, or an address alone."""
        message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def read() -> bytes:
            self.asked.append(peer)
            return await message

        self.tasks.append(
            asyncio.ensure_future(self.gate.receive(Caller(peer.partition(":")[0], peer), read))
        )
        await turns()
        return self.tasks[-1], message


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def pass_s(clock: ManualClock, seconds: float) -> None:
    """Time in which the loop turns."""
    for _ in range(round(seconds / LOOK_S)):
        clock.advance(LOOK_S)
        await turns()


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The loop's own: its timers are due by it."""
    turned_by_hand = ManualClock()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", turned_by_hand)
    return turned_by_hand


@pytest.fixture
async def senders() -> AsyncIterator[Senders]:
    async with sending(gate_of(2)) as made:
        yield made


@asynccontextmanager
async def sending(gate: MessageGate) -> AsyncIterator[Senders]:
    made = Senders(gate)
    try:
        yield made
    finally:
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


async def test_an_address_with_many_connections_is_one_that_has_many_places(
    senders: Senders,
) -> None:
    oldest, _ = await senders.begins("greedy:1")
    younger, _ = await senders.begins("greedy:2")
    in_line, _ = await senders.begins("greedy:3")
    _, message = await senders.begins("modest:1")
    with pytest.raises(SlowRequest):
        await oldest
    await turns()
    assert senders.asked == ["greedy:1", "greedy:2", "modest:1"]
    message.set_result(b"came in")
    assert await senders.tasks[-1] == b"came in"
    assert not younger.done()
    assert not in_line.done()


async def test_among_equals_the_oldest_gives_way_when_its_patience_is_over(
    clock: ManualClock,
) -> None:
    async with sending(gate_of(2, patience_s=2.0)) as senders:
        oldest, _ = await senders.begins("a")
        await pass_s(clock, 1.0)
        younger, _ = await senders.begins("b")
        late, _ = await senders.begins("c")
        await pass_s(clock, 0.9)
        assert not oldest.done()
        await pass_s(clock, 0.2)
        with pytest.raises(SlowRequest):
            await oldest
        await turns()
        assert senders.asked == ["a", "b", "c"]
        assert not younger.done()
        assert not late.done()


async def test_nobody_gives_way_while_nobody_waits(clock: ManualClock) -> None:
    async with sending(gate_of(2, patience_s=2.0)) as senders:
        first, _ = await senders.begins("a")
        second, _ = await senders.begins("b")
        await pass_s(clock, 30.0)
        assert not first.done()
        assert not second.done()


async def test_what_arrived_while_our_own_loop_stood_is_received(clock: ManualClock) -> None:
    async with sending(gate_of(1, patience_s=2.0)) as senders:
        first, message = await senders.begins("a")
        await senders.begins("b")
        clock.advance(30.0)  # and nothing has turned meanwhile
        await turns()
        message.set_result(b"was there")
        assert await first == b"was there"


async def test_a_message_has_so_long_and_no_longer() -> None:
    gate = gate_of(1, timeout_s=0.01)
    with pytest.raises(SlowRequest, match="within 0.01 s"):
        await gate.receive(Caller("a", "a"), asyncio.Event().wait)
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


async def test_who_has_sent_whole_messages_comes_before_strangers_of_its_own_address() -> None:
    async with sending(gate_of(1, max_known=8)) as senders:
        _, beat = await senders.begins("a:worker")
        beat.set_result(b"whole")
        await turns()
        for port in range(MAX_WAITING + 1):
            await senders.begins(f"a:{port}")
        worker, again = await senders.begins("a:worker")
        assert not worker.done()
        senders.tasks[1].cancel()  # the stranger that has the place
        await turns()
        again.set_result(b"whole again")
        assert await worker == b"whole again"


async def test_a_message_that_does_not_come_makes_a_stranger_again(clock: ManualClock) -> None:
    async with sending(gate_of(1, timeout_s=1.0, max_known=8)) as senders:
        _, first = await senders.begins("a:1")
        first.set_result(b"whole")
        await turns()
        silent, _ = await senders.begins("a:1")
        await pass_s(clock, 2.0)
        with pytest.raises(SlowRequest):
            await silent
        await senders.begins("a:2")
        await senders.begins("a:3")
        await senders.begins("a:1")
        senders.tasks[2].cancel()
        await turns()
        assert senders.asked[-1] == "a:3"
