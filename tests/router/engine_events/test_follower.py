"""An engine is followed over real sockets, whatever it says and does not say."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import zmq.asyncio

from cluster.cache_change import CacheChange
from cluster.kv_events.wire import encode_sequence
from cluster.process.background import cancel
from cluster.process.loop_share import LoopShare
from router.engine_events import replay as replay_module
from router.engine_events.follower import EngineEventFollower
from tests.router.engine_events.engine import CLEARED, payload, removed, stored
from tests.router.engine_events.rogue_engine import RogueEngine, until


class Listener:
    """What a router would believe, by the number in each block's tokens."""

    def __init__(self) -> None:
        self._names: dict[bytes, int] = {}
        self.gaps = 0
        self.resyncs = 0
        self.left_out: Counter[str] = Counter()

    @property
    def live(self) -> set[int]:
        return set(self._names.values())

    def apply(self, change: CacheChange) -> None:
        if change.cleared:
            self._names.clear()
        self._names |= {block.name: block.token_ids[0] for block in change.stored}
        for name in change.removed:
            self._names.pop(name, None)

    def note_gap(self) -> None:
        self.gaps += 1

    def note_resync(self) -> None:
        self.resyncs += 1

    def note_left_out(self, why: str, num_blocks: int) -> None:
        self.left_out[why] += num_blocks


class Turns(Listener):
    """A listener that knows how many blocks it heard of in each turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.blocks_in_turn: Counter[int] = Counter()

    def apply(self, change: CacheChange) -> None:
        super().apply(change)
        self.blocks_in_turn[self.turn] += len(change.stored) + len(change.removed)


def block(number: int) -> dict[str, object]:
    """The first of a prompt."""
    return stored([number], None, [number] * 4)


@asynccontextmanager
async def following(
    engine: RogueEngine,
    listener: Listener,
    *,
    replay: bool = True,
    share: LoopShare | None = None,
) -> AsyncIterator[None]:
    """From the moment on when it hears."""
    source = engine.source(replay=replay)
    follower = EngineEventFollower(source, listener, share=share or LoopShare(), retry_s=0.05)
    context = zmq.asyncio.Context()
    task = asyncio.create_task(follower.run(context))
    try:
        await engine.subscribed()
        await until(lambda: listener.resyncs > 0)
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        context.destroy(linger=0)


@pytest.mark.parametrize("frames", [3, 4])
async def test_a_late_follower_hears_the_past_and_then_every_message(frames: int) -> None:
    engine, listener = RogueEngine(frames=frames), Listener()
    async with engine.running():
        await engine.publish(block(1), block(2))
        await engine.publish(removed([2]))
        async with following(engine, listener):
            assert listener.live == {1}
            await engine.publish(block(3), block(3))
            await engine.publish(removed([3]), removed([1]))
            await until(lambda: listener.live == {3})
            await engine.publish(CLEARED)
            await until(lambda: not listener.live)
    assert (listener.gaps, listener.resyncs) == (0, 1)


async def test_a_gap_is_filled_from_the_past_and_nothing_is_counted_twice() -> None:
    engine, listener = RogueEngine(), Listener()
    async with engine.running(), following(engine, listener):
        await engine.publish(block(1))
        await engine.publish(block(1), lost=True)
        await engine.publish(block(2), lost=True)
        await engine.publish(block(3))
        await until(lambda: listener.live == {1, 2, 3})
        await engine.publish(removed([3]), removed([1]))
        await until(lambda: listener.live == {1, 2})
        assert engine.asked == [0, 1] and (listener.gaps, listener.resyncs) == (1, 1)


async def test_what_a_replay_drops_on_its_way_is_asked_for_again() -> None:
    engine, listener = RogueEngine(), Listener()
    async with engine.running():
        for number in range(1, 30):
            await engine.publish(block(number))
        engine.lost_in_replay = [{5, 6, 20}, {20}]
        async with following(engine, listener):
            assert listener.live == set(range(1, 30))
            assert engine.asked == [0, 5, 20]


async def test_a_gap_that_the_past_does_not_reach_makes_all_of_it_forgotten() -> None:
    engine, listener = RogueEngine(kept=2), Listener()
    async with engine.running(), following(engine, listener):
        await engine.publish(block(1))
        await until(lambda: listener.live == {1})
        for number in range(2, 7):
            await engine.publish(block(number), lost=True)
        await engine.publish(block(7))
        await until(lambda: listener.live == {7})
        await engine.publish(block(8))
        await until(lambda: listener.live == {7, 8})


async def test_without_a_replay_socket_a_gap_makes_all_of_it_forgotten() -> None:
    engine, listener = RogueEngine(), Listener()
    async with engine.running():
        await engine.publish(block(1))
        async with following(engine, listener, replay=False):
            await engine.publish(block(2))
            await until(lambda: listener.live == {2})
            await engine.publish(block(3), lost=True)
            await engine.publish(block(4))
            await until(lambda: listener.live == {4})
            assert listener.gaps == 1 and engine.asked == []


async def test_old_messages_that_come_again_are_passed_over() -> None:
    engine, listener = RogueEngine(), Listener()
    async with engine.running(), following(engine, listener):
        for number in range(1, 4):
            await engine.publish(block(number))
        for number, packed in reversed(engine.past):
            await engine.say(number, packed)
        await engine.publish(removed([1]), removed([2]))
        await until(lambda: listener.live == {3})
        assert listener.resyncs == 1 and listener.gaps == 0


async def test_messages_in_another_order_count_once_each() -> None:
    engine, listener = RogueEngine(), Listener()
    async with engine.running(), following(engine, listener):
        for number in range(1, 5):
            await engine.publish(block(number), lost=True)
        for index in (0, 2, 1, 3):
            await engine.say(*engine.past[index])
        await engine.publish(*[removed([number]) for number in (1, 2, 3)])
        await until(lambda: listener.live == {4})


@pytest.mark.parametrize("replay", [True, False])
async def test_an_engine_that_starts_again_from_0_is_followed_anew(replay: bool) -> None:
    engine, listener = RogueEngine(), Listener()
    async with engine.running(), following(engine, listener, replay=replay):
        for number in range(1, 6):
            await engine.publish(block(number))
        await until(lambda: len(listener.live) == 5)
        engine.start_again()
        await engine.publish(block(7))
        await engine.publish(block(8))
        await until(lambda: listener.live == {7, 8})
        assert listener.resyncs == 2


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xc1" * 50,
        payload(stored([9], None, [1, 2, 3])),
        payload(block(1), stored([1], None, [2] * 4)),
        payload({"block_hashes": []}),
    ],
)
async def test_what_cannot_be_true_makes_all_forgotten_and_the_next_is_heard(
    garbage: bytes,
) -> None:
    engine, listener = RogueEngine(), Listener()
    async with engine.running(), following(engine, listener):
        await engine.publish(block(1))
        await until(lambda: listener.live == {1})
        number = await engine.publish(lost=True)
        await engine.say(number, garbage)
        await engine.publish(block(2))
        await until(lambda: listener.live == {2})
        assert listener.gaps == 1


async def test_messages_without_a_number_are_passed_over() -> None:
    engine, listener = RogueEngine(), Listener()
    async with engine.running(), following(engine, listener):
        await engine.say_frames()
        await engine.say_frames(b"short", payload(block(8)))
        await engine.say_frames(encode_sequence(0), payload(block(8)), b"more")
        await engine.publish(block(1))
        await until(lambda: listener.live == {1})
        assert listener.gaps == 0


async def test_a_number_out_of_all_measure_is_healed_by_the_next_message() -> None:
    engine, listener = RogueEngine(), Listener()
    async with engine.running(), following(engine, listener):
        await engine.publish(block(1))
        await engine.say(2**63, payload(ts=50.0))
        await engine.publish(block(2))
        await until(lambda: listener.live == {1, 2})


async def test_an_engine_that_does_not_tell_its_past_is_heard_and_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_module, "ANSWER_TIMEOUT_S", 0.05)
    engine, listener = RogueEngine(), Listener()
    engine.answers = False
    async with engine.running():
        await engine.publish(block(1))
        asked = asyncio.create_task(until(lambda: len(engine.asked) > 1))
        asked.add_done_callback(lambda _: setattr(engine, "answers", True))
        async with following(engine, listener):
            await until(lambda: listener.live == {1})
            await engine.publish(block(2))
            await until(lambda: listener.live == {1, 2})


@pytest.mark.parametrize("seed", range(4))
async def test_after_losses_repeats_and_other_orders_all_that_is_there_is_known(seed: int) -> None:
    chance, engine, listener = random.Random(seed), RogueEngine(), Listener()
    copies: Counter[int] = Counter()
    async with engine.running(), following(engine, listener):
        for _ in range(150):
            number = chance.randint(1, 20)
            if copies[number] and chance.random() < 0.5:
                copies[number] -= 1
                await engine.publish(removed([number]), lost=chance.random() < 0.3)
            else:
                copies[number] += 1
                await engine.publish(block(number), lost=chance.random() < 0.3)
            if chance.random() < 0.2:
                await engine.say(*chance.choice(engine.past))
        await engine.publish()
        await until(lambda: listener.live == set(+copies))


async def test_a_long_event_leaves_turns_of_the_loop_to_others() -> None:
    engine, listener, num_turns = RogueEngine(), Turns(), 0

    async def others() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            listener.turn = num_turns
            await asyncio.sleep(0)

    busy = asyncio.create_task(others())
    async with engine.running(), following(engine, listener, share=LoopShare(budget_s=0.0)):
        await engine.publish(stored(list(range(5000)), None, list(range(20_000))))
        await until(lambda: len(listener.live) == 5000)
        await engine.publish(removed(list(range(5000))))
        await until(lambda: not listener.live)
    await cancel([busy])
    assert max(listener.blocks_in_turn.values()) == 256
    assert len(listener.blocks_in_turn) == 2 * 20
