"""Messages of strangers are received a few at a time, each in its turn and within its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from cluster.deadline import Clock, Deadline
from cluster.errors import DeadlineExceeded, NotReady, SlowRequest
from cluster.process.background import cancel
from router.front.caller import Caller
from router.grpc_front.lost_time import LostTimeLimits
from router.grpc_front.message_gate import GateLimits, MessageGate
from router.grpc_front.message_reads import OnArrival
from router.grpc_front.standing import ClientStanding, ControlStanding, Standing
from tests.manual_clock import ManualClock

MAX_WAITING = 20
FOREVER_S = 600.0
LOOK_S = 0.05
CLIENT_S = 10.0


NEVER = Deadline.never()


def gate_of(
    num_places: int,
    *,
    gives_way_after_s: float = FOREVER_S,
    timeout_s: float = FOREVER_S,
    max_wait_s: float = FOREVER_S,
    standing: Standing | None = None,
    clock: Clock = time.monotonic,
) -> MessageGate:
    """One that doubts everybody, where no `standing` says otherwise."""
    return MessageGate(
        GateLimits(
            max_receiving=num_places,
            max_waiting=MAX_WAITING,
            max_wait_s=max_wait_s,
            timeout_s=timeout_s,
            gives_way_after_s=gives_way_after_s,
        ),
        standing or ControlStanding(0),
        clock,
    )


def clients_gate(
    num_places: int, clock: Clock, *, max_wait_s: float = FOREVER_S, doubt_s: float = 60.0
) -> MessageGate:
    """One that trusts, as that of clients."""
    lost_time = LostTimeLimits(forgiven_s=CLIENT_S / 2, doubt_s=doubt_s)
    return gate_of(
        num_places,
        timeout_s=CLIENT_S,
        gives_way_after_s=CLIENT_S / 2,
        max_wait_s=max_wait_s,
        standing=ClientStanding(lost_time, clock),
        clock=clock,
    )


class Senders:
    """Peers, as address:port or an address alone, that send when they are told to."""

    def __init__(self, gate: MessageGate) -> None:
        self.gate = gate
        self.asked: list[str] = []
        """Whose message was asked for, in order."""
        self.tasks: list[asyncio.Task[bytes]] = []
        self.until = NEVER

    async def begins(self, peer: str) -> tuple[asyncio.Task[bytes], asyncio.Future[bytes]]:
        """A message and what completes it."""
        message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def read(_: OnArrival) -> bytes:
            self.asked.append(peer)
            return await message

        self.tasks.append(asyncio.ensure_future(self.gate.receive(caller(peer), read, self.until)))
        await turns()
        return self.tasks[-1], message

    async def uploads(self, peer: str, took_s: float) -> asyncio.Task[bytes]:
        """A message that arrives steadily, so long after it was asked for."""

        async def read(_: OnArrival) -> bytes:
            await asyncio.sleep(took_s)
            return b"whole"

        self.tasks.append(asyncio.ensure_future(self.gate.receive(caller(peer), read, self.until)))
        await turns()
        return self.tasks[-1]


def caller(peer: str) -> Caller:
    return Caller(peer.partition(":")[0], peer)


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
        await asyncio.gather(*made.tasks, return_exceptions=True)


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


@pytest.mark.parametrize("took_s", [3.0, 8.0])
async def test_slow_uploads_of_more_senders_than_places_come_in_in_their_turn(
    clock: ManualClock, took_s: float
) -> None:
    async with sending(clients_gate(4, clock)) as senders:
        uploads = [await senders.uploads(f"a{i}", took_s) for i in range(12)]
        for wave in (1, 2, 3):
            await pass_s(clock, took_s + LOOK_S)
            assert [task.done() for task in uploads] == [i < 4 * wave for i in range(12)]
        assert await asyncio.gather(*uploads) == [b"whole"] * 12


async def test_uploads_of_one_connection_lose_nothing_to_others_who_need_not_wait(
    clock: ManualClock,
) -> None:
    async with sending(clients_gate(28, clock)) as senders:
        proxied = [await senders.uploads("proxy:1", 3.0) for _ in range(28)]
        for i in range(10):
            assert await senders.gate.receive(caller(f"a{i}"), quick, NEVER) == b"quick"
        assert not any(task.done() for task in proxied)
        await pass_s(clock, 7.0)
        assert await asyncio.gather(*proxied) == [b"whole"] * 28


async def test_an_address_that_fills_its_share_keeps_out_no_newcomer(
    clock: ManualClock,
) -> None:
    async with sending(clients_gate(4, clock)) as senders:
        for port in range(10):
            await senders.begins(f"greedy:{port}")
        assert senders.gate.num_receiving == 3
        assert await senders.gate.receive(caller("modest"), quick, NEVER) == b"quick"
        assert not any(task.done() for task in senders.tasks)


async def test_who_let_its_time_run_out_gives_way_the_next_time_and_is_told_to_wait(
    clock: ManualClock,
) -> None:
    async with sending(clients_gate(1, clock)) as senders:
        first, _ = await senders.begins("drips")
        await pass_s(clock, CLIENT_S + LOOK_S)
        with pytest.raises(SlowRequest, match="within 10 s"):
            await first
        second, _ = await senders.begins("drips")
        waits = await senders.uploads("steady", 8.0)
        await pass_s(clock, CLIENT_S / 2 - LOOK_S)
        assert not second.done()
        await pass_s(clock, 3 * LOOK_S)
        with pytest.raises(NotReady, match="others wait"):
            await second
        await pass_s(clock, 8.0 + LOOK_S)
        assert await waits == b"whole"


async def test_who_let_its_time_run_out_comes_after_all_others_in_line(
    clock: ManualClock,
) -> None:
    async with sending(clients_gate(1, clock)) as senders:
        await senders.begins("drips")
        again, _ = await senders.begins("drips")
        steady = [await senders.uploads(name, 2.0) for name in "ab"]
        await pass_s(clock, CLIENT_S + 4.0 + 3 * LOOK_S)
        assert all(task.done() for task in steady)
        assert senders.asked == ["drips", "drips"]
        assert not again.done()


async def test_a_call_that_is_taken_back_again_and_again_is_lost_time_as_well(
    clock: ManualClock,
) -> None:
    async with sending(clients_gate(1, clock)) as senders:
        for _ in range(2):
            held, _ = await senders.begins("drips")
            await pass_s(clock, 3.0)
            held.cancel()
            await turns()
        await senders.begins("first")
        await senders.begins("drips")
        await senders.begins("steady")
        senders.tasks[2].cancel()
        await turns()
        assert senders.asked[-1] == "steady"


async def test_among_crowds_that_drip_steady_uploads_come_in_and_none_is_refused(
    clock: ManualClock,
) -> None:
    async with sending(clients_gate(4, clock)) as senders:
        drips = [asyncio.ensure_future(opens_again(senders.gate, f"d{i}")) for i in range(12)]
        try:
            for _ in range(3):
                uploads = [await senders.uploads(f"a{i}", 8.0) for i in range(4)]
                await pass_s(clock, 4 * CLIENT_S)
                assert await asyncio.gather(*uploads) == [b"whole"] * 4
        finally:
            await cancel(drips)


async def opens_again(gate: MessageGate, peer: str) -> None:
    """Messages that never come."""
    while True:
        with suppress(SlowRequest, NotReady):
            await gate.receive(caller(peer), never_comes, NEVER)


async def quick(_: OnArrival) -> bytes:
    return b"quick"


async def never_comes(_: OnArrival) -> bytes:
    await asyncio.Event().wait()
    return b""


async def test_where_all_are_doubted_the_oldest_gives_way_when_its_patience_is_over(
    clock: ManualClock,
) -> None:
    async with sending(gate_of(2, gives_way_after_s=2.0, clock=clock)) as senders:
        oldest, _ = await senders.begins("a")
        await pass_s(clock, 1.0)
        younger, _ = await senders.begins("b")
        late, _ = await senders.begins("c")
        await pass_s(clock, 0.9)
        assert not oldest.done()
        await pass_s(clock, 0.2)
        with pytest.raises(NotReady):
            await oldest
        await turns()
        assert senders.asked == ["a", "b", "c"]
        assert not younger.done()
        assert not late.done()


async def test_nobody_gives_way_while_nobody_waits(clock: ManualClock) -> None:
    async with sending(gate_of(2, gives_way_after_s=2.0, clock=clock)) as senders:
        first, _ = await senders.begins("a")
        second, _ = await senders.begins("b")
        await pass_s(clock, 30.0)
        assert not first.done()
        assert not second.done()


async def test_what_arrived_while_our_own_loop_stood_is_received(clock: ManualClock) -> None:
    async with sending(gate_of(1, gives_way_after_s=2.0, clock=clock)) as senders:
        first, message = await senders.begins("a")
        await senders.begins("b")
        clock.advance(30.0)  # and nothing has turned meanwhile
        await turns()
        message.set_result(b"was there")
        assert await first == b"was there"


async def test_a_message_has_so_long_and_no_longer() -> None:
    gate = gate_of(1, timeout_s=0.01)
    with pytest.raises(SlowRequest, match="within 0.01 s"):
        await gate.receive(Caller("a", "a"), never_comes, NEVER)
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
    async with sending(gate_of(1, standing=ControlStanding(8))) as senders:
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
    async with sending(
        gate_of(1, timeout_s=1.0, standing=ControlStanding(8), clock=clock)
    ) as senders:
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


async def test_who_waits_has_its_rank_by_what_is_held_of_it_when_a_place_is_free(
    clock: ManualClock,
) -> None:
    async with sending(clients_gate(1, clock, doubt_s=4.0)) as senders:
        for _ in range(2):
            held, _ = await senders.begins("drips")
            await pass_s(clock, 3.0)
            held.cancel()
            await turns()
        holder = await senders.uploads("steady", 8.0)
        await senders.begins("drips")
        await pass_s(clock, 5.0)  # and it is trusted again
        await senders.begins("later")
        await pass_s(clock, 3.0 + LOOK_S)
        assert await holder == b"whole"
        await turns()
        assert senders.asked[-1] == "drips"


async def test_who_has_no_turn_for_long_is_told_to_come_again(clock: ManualClock) -> None:
    async with sending(clients_gate(1, clock, max_wait_s=2.0)) as senders:
        await senders.begins("a")
        waits, _ = await senders.begins("b")
        await pass_s(clock, 1.9)
        assert not waits.done()
        await pass_s(clock, 0.2)
        with pytest.raises(NotReady, match="no turn for 2 s"):
            await waits
        assert senders.asked == ["a"]


async def test_a_request_s_deadline_bounds_its_wait_and_its_message(clock: ManualClock) -> None:
    async with sending(clients_gate(1, clock)) as senders:
        senders.until = Deadline.after(3.0, clock)
        begun, _ = await senders.begins("a")
        waits, _ = await senders.begins("b")
        await pass_s(clock, 3.1)
        for ended in (begun, waits):
            with pytest.raises(DeadlineExceeded):
                await ended


class CountingStanding(ControlStanding):
    """Notes how often who waits is looked at."""

    num_asked = 0

    def is_doubted(self, caller: Caller) -> bool:
        self.num_asked += 1
        return super().is_doubted(caller)


async def test_however_many_leave_together_those_who_wait_are_looked_at_once() -> None:
    standing = CountingStanding(0)
    async with sending(gate_of(8, standing=standing)) as senders:
        for i in range(8 + MAX_WAITING):
            await senders.begins(f"a{i}")
        standing.num_asked = 0
        for task in senders.tasks[:-1]:
            task.cancel()
        await turns()
        assert senders.asked[-1] == f"a{7 + MAX_WAITING}"
        assert standing.num_asked <= 4


async def test_what_has_arrived_and_waits_for_our_own_loop_does_not_give_way(
    clock: ManualClock,
) -> None:
    our_turn = asyncio.Event()

    async def arrives(on_arrival: OnArrival) -> bytes:
        on_arrival()
        await our_turn.wait()
        return b"whole"

    gate = gate_of(1, gives_way_after_s=2.0, timeout_s=4.0, clock=clock)
    async with sending(gate) as senders:
        beat = asyncio.ensure_future(gate.receive(caller("worker"), arrives, NEVER))
        await turns()
        await senders.begins("b")
        await pass_s(clock, 6.0)
        our_turn.set()
        assert await beat == b"whole"
