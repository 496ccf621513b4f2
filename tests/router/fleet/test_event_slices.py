"""Snapshots and large events go into the index in slices, with everything else in between."""

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest
import zmq
import zmq.asyncio

from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import WorkerKey
from cluster.kv_events import publisher as publisher_module
from cluster.kv_events import wire
from cluster.kv_events.publisher import KvEventPublisher
from cluster.kv_events.replay_buffer import ReplayBuffer
from cluster.kv_events.subscriber import EventAddresses, FollowState, KvEventSubscriber
from cluster.kv_events.wire import encode_sequence
from cluster.process.background import cancel
from cluster.process.loop_share import LoopShare
from router.index.invariants import check_invariants
from router.index.prefix_index import PrefixIndex
from tests.router.dispatch_bench import router
from tests.router.fake_decode_worker import FakeDecodeWorker, until

ROOT = cache_root("model")
SIZE = 1
KEY, OTHER = WorkerKey("decode-1", "i1"), WorkerKey("decode-2", "i1")


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "SLICE_BLOCKS", 2)
    monkeypatch.setattr(wire, "SLICE_NAMES", 1)
    monkeypatch.setattr(publisher_module, "BLOCKS_PER_MESSAGE", 5)


def names_of(prompt: list[int]) -> list[bytes]:
    return chain_names(pack_tokens(prompt), parent=ROOT, block_size_tokens=SIZE)


class Cache:
    """A worker's prefix cache, two tokens, and its events: some of them get lost on the way."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.live: dict[bytes, CachedBlock] = {}
        self.publisher = KvEventPublisher(
            "127.0.0.1", 0, 0, self.snapshot, buffer=ReplayBuffer(max_messages=4)
        )
        self._context = zmq.Context()
        self._lossy = self._context.socket(zmq.PUB)
        self._lossy.bind("tcp://127.0.0.1:0")
        self.address = self._lossy.getsockopt_string(zmq.LAST_ENDPOINT)
        self._next = 0

    async def snapshot(self) -> list[CachedBlock]:
        return list(self.live.values())

    def change(self) -> None:
        """A prompt comes, or a leaf goes."""
        if self.live and self.random.random() < 0.4:
            parents = {block.parent for block in self.live.values()}
            leaf = self.random.choice([name for name in self.live if name not in parents])
            del self.live[leaf]
            self.publisher.publish(CacheChange(removed=[leaf]))
            return
        prompt = self.random.choices((1, 2), k=self.random.randint(1, 12))
        names = names_of(prompt)
        new = [
            CachedBlock(name, names[index - 1] if index else None, [prompt[index]])
            for index, name in enumerate(names)
            if name not in self.live
        ]
        self.live |= {block.name: block for block in new}
        self.publisher.publish(CacheChange(stored=new))

    def deliver(self, *, share: float) -> None:
        """Everything that was published goes out, but for what is lost."""
        for number, payload in self.publisher._buffer.since(self._next):
            if self.random.random() < share:
                self._lossy.send_multipart((b"", encode_sequence(number), payload))
            self._next = number + 1

    async def close(self) -> None:
        await self.publisher.stop()
        self._context.destroy(linger=0)


class IntoIndex:
    """An EventListener."""

    def __init__(self, index: PrefixIndex) -> None:
        self._index = index
        self.num_resyncs = 0

    def apply(self, change: CacheChange) -> None:
        assert self._index.apply(KEY, change) == 0, "a slice has lost its parent"

    def note_gap(self) -> None:
        pass

    def note_resync(self) -> None:
        self.num_resyncs += 1


async def meddle(index: PrefixIndex, seed: int) -> None:
    """What the rest of the router does between two slices: other workers come and go, requests
    are sent and end."""
    chance = random.Random(seed)
    while True:
        packed = pack_tokens(chance.choices((1, 2), k=8))
        index.add_worker(OTHER, SIZE)
        expectation = index.expect([OTHER, KEY], ROOT, packed)
        try:
            await asyncio.sleep(0)
        finally:
            expectation.settle(came_true=False)
        if chance.random() < 0.5:
            index.remove_worker(OTHER)
            next(index.sweep(), None)  # begun, and begun again with the next
        for tree in index.trees:
            check_invariants(tree)
        await asyncio.sleep(0)


def differences(index: PrefixIndex, cache: Cache) -> list[list[int]]:
    """Prompts of which the index believes something else than the worker has."""
    wrong = []
    for number in range(64):
        prompt = [1 + (number >> bit & 1) for bit in range(6)]
        held = 0
        for name in names_of(prompt):
            if name not in cache.live:
                break
            held += 1
        if index.match(ROOT, pack_tokens(prompt), SIZE).of(KEY) != held:
            wrong.append(prompt)
    return wrong


@pytest.mark.parametrize("seed", range(6))
async def test_after_slices_losses_and_everything_between_the_index_says_what_the_worker_has(
    seed: int,
) -> None:
    cache, index = Cache(seed), PrefixIndex(10_000)
    index.add_worker(KEY, SIZE)
    _, replay = await cache.publisher.start()
    for _ in range(50):
        cache.change()
    context = zmq.asyncio.Context()
    listener = IntoIndex(index)
    subscriber = KvEventSubscriber(
        EventAddresses(cache.address, replay),
        listener,
        retry_s=0.02,
        share=LoopShare(budget_s=0.0),
    )
    tasks = [
        asyncio.create_task(subscriber.run(context)),
        asyncio.create_task(meddle(index, seed)),
    ]
    await until(lambda: subscriber.state is FollowState.FOLLOWING)
    for _ in range(40):
        for _ in range(cache.random.randint(1, 8)):
            cache.change()
        cache.deliver(share=0.7)
        for _ in range(cache.random.randint(0, 20)):
            await asyncio.sleep(0)
    await cancel([tasks[1]])
    await settle(
        cache,
        lambda: index.num_blocks_of(KEY) == len(cache.live) and not differences(index, cache),
    )
    assert listener.num_resyncs > 1
    await cancel([tasks[0]])
    context.destroy(linger=0)
    await cache.close()


async def settle(cache: Cache, condition: Callable[[], bool]) -> None:
    """Small changes that all arrive, until the follower has found its gaps."""
    async with asyncio.timeout(20.0):
        while not condition():
            cache.change()
            cache.deliver(share=1.0)
            for _ in range(50):
                await asyncio.sleep(0.0005)


async def test_a_worker_that_leaves_in_the_middle_of_its_snapshot_leaves_nothing() -> None:
    worker = FakeDecodeWorker()
    prompt = list(range(4 * 500))
    names = chain_names(pack_tokens(prompt), parent=ROOT, block_size_tokens=4)
    parents = [None, *names]
    worker.live = [
        CachedBlock(name, parents[i], prompt[4 * i : 4 * i + 4]) for i, name in enumerate(names)
    ]
    async with worker, router() as plane:
        plane.fleet._followers._share = LoopShare(budget_s=0.0)
        pub, replay = await worker.start_events()
        member = worker.member(kv_events_address=pub, kv_replay_address=replay)
        await plane.store.join(member)
        while not 0 < plane.index.num_blocks < 500:
            await asyncio.sleep(0)
        await plane.store.leave(member.key)
        successor = worker.member(incarnation="i2", kv_events_address=pub, kv_replay_address=replay)
        worker.live = worker.live[:3]
        await plane.store.join(successor)
        await until(lambda: plane.index.num_blocks_of(successor.key) == 3)
        await until(lambda: plane.index.num_blocks == 3)


async def test_a_sweep_that_fails_by_a_bug_is_begun_again_without_another_departure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = FakeDecodeWorker("decode-1")
    async with router(worker) as plane:
        index, num_sweeps = plane.index, list[int]()
        key = plane.fleet.members[0].key
        index.apply(key, CacheChange(stored=[CachedBlock(names_of([1])[0], None, [1] * 4)]))

        def fails_once() -> Iterator[None]:
            num_sweeps.append(1)
            if len(num_sweeps) == 1:
                raise KeyError("a bug of ours")
            return PrefixIndex.sweep(index)

        monkeypatch.setattr(index, "sweep", fails_once)
        await plane.store.leave(key)
        await until(lambda: not index.needs_sweep)
        assert len(num_sweeps) > 1 and index.num_blocks == 0
