"""What runs behind a router, and what happens when it ends by itself."""

import asyncio

import pytest

from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.config import RouterOptions
from cluster.identity import WorkerKey
from cluster.membership.expiry import Expiry
from cluster.process.background import Loss
from cluster.world import World
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.index.prefix_index import PrefixIndex
from tests.router.dispatch_bench import router
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.planes import PAIRING


async def test_a_router_that_can_no_longer_judge_leases_is_told_and_not_left_to_believe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(expiry: Expiry) -> None:
        raise ValueError("no clock")

    monkeypatch.setattr(Expiry, "turn", fail)
    lost: asyncio.Future[Loss] = asyncio.get_running_loop().create_future()
    plane = FleetPlane(RouterOptions(), OwnModel(), World(), on_loss=lost.set_result)
    await plane.start()
    assert str(await lost) == "membership-expiry has failed: ValueError: no clock"
    await plane.close()


async def test_a_follower_that_dies_starts_again_and_learns_everything_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prompt = list(range(40))
    names = chain_names(pack_tokens(prompt), parent=cache_root(PAIRING.key), block_size_tokens=4)
    parents = [None, *names]
    worker = FakeDecodeWorker()
    worker.live = [
        CachedBlock(name, parents[i], prompt[4 * i : 4 * i + 4]) for i, name in enumerate(names)
    ]
    apply, num_calls = PrefixIndex.apply, 0

    def fail_once(index: PrefixIndex, key: WorkerKey, change: CacheChange) -> int:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 3:
            raise RuntimeError("a bug of ours")
        return apply(index, key, change)

    monkeypatch.setattr(PrefixIndex, "apply", fail_once)
    async with router(worker) as plane:
        pub, replay = await worker.start_events()
        member = worker.member(incarnation="i2", kv_events_address=pub, kv_replay_address=replay)
        await plane.store.join(member)
        await until(lambda: plane.index.num_blocks_of(member.key) == 10)
        assert num_calls > 3


async def test_all_followers_share_one_context_of_sockets() -> None:
    workers = [FakeDecodeWorker(f"decode-{number}") for number in range(3)]
    async with router(*workers) as plane:
        for worker in workers:
            pub, replay = await worker.start_events()
            await plane.store.join(
                worker.member(incarnation="i2", kv_events_address=pub, kv_replay_address=replay)
            )
        await until(lambda: sum(item.follower is not None for item in plane.fleet.members) == 3)
        context = plane.fleet._followers._context
        assert context is not None
        await plane.close()
        assert context.closed
