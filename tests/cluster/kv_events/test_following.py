"""Publisher and subscriber over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
import zmq
import zmq.asyncio
from msgspec import structs

from cluster.cache_change import CacheChange, CachedBlock
from cluster.kv_events import subscriber as subscriber_module
from cluster.kv_events.publisher import KvEventPublisher
from cluster.kv_events.replay import ReplayMessage, ask
from cluster.kv_events.replay_buffer import ReplayBuffer
from cluster.kv_events.subscriber import EventAddresses, FollowState, KvEventSubscriber
from cluster.kv_events.wire import END, BlockStored, decode_batch, encode_sequence, to_changes
from cluster.process.background import cancel
from cluster.process.loop_share import LoopShare


def block(number: int, parent: int | None = None) -> CachedBlock:
    parent_name = None if parent is None else name(parent)
    return CachedBlock(name(number), parent_name, [number, number])


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


class Worker:
    """A cache and its publisher."""

    def __init__(self, port: int = 0, replay_port: int = 0, max_messages: int = 100) -> None:
        self.live: dict[bytes, CachedBlock] = {}
        self.publisher = KvEventPublisher(
            "127.0.0.1", port, replay_port, self.snapshot, buffer=ReplayBuffer(max_messages)
        )

    async def snapshot(self) -> list[CachedBlock]:
        return list(self.live.values())

    def store(self, *blocks: CachedBlock) -> None:
        self.live |= {item.name: item for item in blocks}
        self.publisher.publish(CacheChange(stored=list(blocks)))

    def remove(self, *numbers: int) -> None:
        for number in numbers:
            del self.live[name(number)]
        self.publisher.publish(CacheChange(removed=[name(number) for number in numbers]))


class Listener:
    """What a router would believe."""

    def __init__(self) -> None:
        self.live: set[bytes] = set()
        self.gaps = 0
        self.resyncs = 0

    def apply(self, change: CacheChange) -> None:
        if change.cleared:
            self.live.clear()
        self.live |= {item.name for item in change.stored}
        self.live -= set(change.removed)

    def note_gap(self) -> None:
        self.gaps += 1

    def note_resync(self) -> None:
        self.resyncs += 1


@asynccontextmanager
async def following(pub: str, replay: str, listener: Listener) -> AsyncIterator[KvEventSubscriber]:
    subscriber = KvEventSubscriber(EventAddresses(pub, replay), listener, retry_s=0.05)
    context = zmq.asyncio.Context()
    task = asyncio.create_task(subscriber.run(context))
    try:
        yield subscriber
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        context.destroy(linger=0)


async def test_a_late_subscriber_learns_what_is_alive_and_then_every_change() -> None:
    worker, listener = Worker(), Listener()
    pub, replay = await worker.publisher.start()
    worker.store(block(1), block(2, 1), block(3, 2))
    worker.remove(3)
    async with following(pub, replay, listener) as subscriber:
        await until(lambda: subscriber.state is FollowState.FOLLOWING)
        assert listener.live == {name(1), name(2)}
        worker.store(block(4, 2))
        worker.remove(1)
        await until(lambda: listener.live == {name(2), name(4)})
        assert listener.gaps == 0
    await worker.publisher.stop()


async def test_a_follower_that_got_no_answer_asks_again_though_its_worker_never_falls_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, listener, num_asked = Worker(), Listener(), 0

    async def answers_the_third(*question: object) -> list[ReplayMessage]:
        nonlocal num_asked
        num_asked += 1
        if num_asked < 3:
            raise TimeoutError("the engine is in a long step")
        return await ask(*question)  # type: ignore[arg-type]

    async def never_silent() -> None:
        while True:
            worker.publisher.publish(CacheChange())
            await asyncio.sleep(0.005)  # ten times in the follower's patience

    monkeypatch.setattr(subscriber_module, "ask", answers_the_third)
    pub, replay = await worker.publisher.start()
    worker.store(block(1))
    speaking = asyncio.create_task(never_silent())
    async with following(pub, replay, listener) as subscriber:
        await until(lambda: subscriber.state is FollowState.FOLLOWING)
        assert listener.live == {name(1)}
    await cancel([speaking])
    await worker.publisher.stop()


async def test_the_snapshot_is_numbered_so_that_live_messages_go_on_without_a_gap() -> None:
    worker = Worker()
    _, replay = await worker.publisher.start()
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow_snapshot() -> list[CachedBlock]:
        entered.set()
        await leave.wait()
        return list(worker.live.values())

    worker.publisher._snapshot = slow_snapshot
    worker.store(block(1))
    context = zmq.asyncio.Context()
    answering = asyncio.create_task(ask(context, replay, END, LoopShare()))
    await entered.wait()
    worker.store(block(2, 1))  # while the engine gathers its snapshot
    worker.remove(1)
    leave.set()
    answer = await answering
    context.destroy(linger=0)
    await worker.publisher.stop()
    assert [number for number, _ in answer] == [1, 2, 3]
    listener = Listener()
    for _, payload in answer:
        for change in to_changes(decode_batch(payload)):
            listener.apply(change)
    assert listener.live == {name(2)}


async def test_live_messages_and_snapshots_call_an_adapter_by_the_name_that_it_has() -> None:
    worker, digest, names = Worker(), "ab" * 16, dict[str, str]()
    worker.publisher._names = lambda: names
    _, replay = await worker.publisher.start()
    adapted = structs.replace(block(1), adapter=digest)
    worker.store(adapted)
    names[digest] = "poet"
    worker.store(structs.replace(block(2), adapter=digest), block(3))
    context = zmq.asyncio.Context()
    buffered = await ask(context, replay, encode_sequence(1), LoopShare())
    snapshot = await ask(context, replay, END, LoopShare())
    context.destroy(linger=0)
    await worker.publisher.stop()

    def told(answer: list[ReplayMessage]) -> list[str | None]:
        events = [event for _, payload in answer for event in decode_batch(payload).events]
        return [event.lora_name for event in events if isinstance(event, BlockStored)]

    assert told(buffered) == [digest, "poet", None]
    assert told(snapshot) == ["poet", "poet", None]


async def test_replay_gives_the_buffered_messages_from_a_number_on() -> None:
    worker = Worker(max_messages=3)
    _, replay = await worker.publisher.start()
    for number in range(1, 6):
        worker.store(block(number))
    context = zmq.asyncio.Context()
    assert [n for n, _ in await ask(context, replay, encode_sequence(4), LoopShare())] == [4, 5]
    assert [n for n, _ in await ask(context, replay, encode_sequence(0), LoopShare())] == [3, 4, 5]
    context.destroy(linger=0)
    await worker.publisher.stop()


class LossyPublisher:
    """A PUB socket that loses messages, in front of a real publisher's replay socket."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind("tcp://127.0.0.1:0")
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def forward(self, number: int, payload: bytes) -> None:
        self._socket.send_multipart((b"", encode_sequence(number), payload))

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.mark.parametrize("max_messages, resyncs", [(100, 1), (2, 2)])
async def test_a_gap_is_found_and_repaired_by_replay_or_else_by_a_snapshot(
    max_messages: int, resyncs: int
) -> None:
    worker, listener, lossy = Worker(max_messages=max_messages), Listener(), LossyPublisher()
    _, replay = await worker.publisher.start()
    async with following(lossy.address, replay, listener) as subscriber:
        await until(lambda: subscriber.state is FollowState.FOLLOWING)
        for number in range(1, 6):
            worker.store(block(number))
        lossy.forward(*worker.publisher._buffer.since(0)[-1])  # 1 to 4 are lost
        await until(lambda: listener.live == {name(number) for number in range(1, 6)})
    assert (listener.gaps, listener.resyncs) == (1, resyncs)
    lossy.close()
    await worker.publisher.stop()


async def test_a_publisher_that_starts_again_on_its_old_ports_is_followed_anew() -> None:
    worker, listener = Worker(), Listener()
    pub, replay = await worker.publisher.start()
    worker.store(block(1), block(2, 1))
    async with following(pub, replay, listener) as subscriber:
        await until(lambda: len(listener.live) == 2)
        await worker.publisher.stop()
        ports = [int(address.rsplit(":", 1)[1]) for address in (pub, replay)]
        reborn = Worker(*ports)
        await reborn.publisher.start()
        await until(lambda: listener.live == set())
        await until(lambda: subscriber.state is FollowState.FOLLOWING)
        reborn.store(block(9))
        await until(lambda: listener.live == {name(9)})
        await reborn.publisher.stop()


async def test_a_publisher_without_a_replay_socket_is_followed_from_now_on() -> None:
    listener, lossy = Listener(), LossyPublisher()
    worker = Worker()
    await worker.publisher.start()
    for number in range(1, 5):
        worker.store(block(number))
    messages = worker.publisher._buffer.since(0)
    async with following(lossy.address, "", listener) as subscriber:
        await until(lambda: subscriber.state is FollowState.FOLLOWING)
        lossy.forward(*messages[1])
        await until(lambda: listener.live == {name(1)})
        lossy.forward(*messages[3])  # a gap that nobody can fill: forget
        await until(lambda: listener.gaps == 1 and listener.live == set())
        lossy.forward(*messages[4])
        await until(lambda: listener.live == {name(4)})
    lossy.close()
    await worker.publisher.stop()


async def test_malformed_messages_and_requests_stop_neither_side() -> None:
    worker, listener, lossy = Worker(), Listener(), LossyPublisher()
    _, replay = await worker.publisher.start()
    context = zmq.Context()
    rogue = context.socket(zmq.DEALER)
    rogue.connect(replay)
    rogue.send_multipart((b"", b"short"))
    rogue.send(b"alone")
    async with following(lossy.address, replay, listener) as subscriber:
        await until(lambda: subscriber.state is FollowState.FOLLOWING)
        worker.store(block(1))
        for payload in (b"\xff\x00", msgspec.msgpack.encode([1.0, [{"type": "Unheard"}]])):
            before = listener.resyncs
            lossy.forward(2 if before > 1 else 1, payload)
            await until(lambda before=before: listener.resyncs > before)
        assert listener.live == {name(1)}
    context.destroy(linger=0)
    lossy.close()
    await worker.publisher.stop()
