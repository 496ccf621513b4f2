"""How the router thinks of a worker, as metrics and `splitserve status` have it."""

import asyncio

from cluster.generation import EngineLoad
from router.control.plane import FleetPlane
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.fleet.test_cooldown import HandClock
from tests.router.planes import prefill_member


def states(plane: FleetPlane, worker_id: str) -> set[str]:
    """Those that metrics show of a worker."""
    return {
        sample.labels["state"]
        for family in plane.registry.collect()
        for sample in family.samples
        if sample.name == "splitserve_member_state" and sample.labels["worker"] == worker_id
    }


def window(plane: FleetPlane, worker_id: str, role: str) -> float | None:
    labels = {"worker": worker_id, "role": role}
    return plane.registry.get_sample_value("splitserve_member_window_requests", labels)


async def test_metrics_have_the_state_of_each_worker_until_it_goes() -> None:
    async with router(FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")) as plane:
        item, other = plane.fleet.members
        clock = HandClock()
        item.cooldown._clock = clock
        seen = [states(plane, "decode-1")]
        plane.fleet.note_request(item.key, failed=True)
        seen.append(states(plane, "decode-1"))
        clock.now_s += 0.5
        seen.append(states(plane, "decode-1"))
        plane.fleet.note_request(item.key, failed=False)
        seen.append(states(plane, "decode-1"))
        assert seen == [{"ready"}, {"resting"}, {"half_open"}, {"ready"}]
        assert plane.fleet.state_of(item) == "ready" and states(plane, "decode-2") == {"ready"}
        await plane.store.beat(item.key, EngineLoad(), draining=True)
        assert states(plane, "decode-1") == {"draining"}
        await plane.store.leave(item.key)
        assert states(plane, "decode-1") == set()
        assert window(plane, "decode-1", "decode") is None
        assert window(plane, other.key.worker_id, "decode") == 1


async def test_a_half_open_worker_is_tried_by_one_request_at_a_time() -> None:
    bad, good = FakeDecodeWorker("decode-bad"), FakeDecodeWorker("decode-good", answer_at_once=True)
    async with router(bad, good) as plane:
        item, well = plane.fleet.members
        clock = HandClock()
        item.cooldown._clock = clock
        for _ in range(100):
            item.slow_start.succeeded()
            well.slow_start.succeeded()
        plane.fleet.note_request(item.key, failed=True)
        clock.now_s += 0.5
        good.answer_at_once = False
        tasks = [asyncio.create_task(collect(plane, request(f"r{n}"))) for n in range(8)]
        await until(lambda: len(bad.submitted) + len(good.submitted) == 8)
        assert len(bad.submitted) == 1, "by load it would have had half of them"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: item.num_in_flight == 0)
        assert item.cooldown.admits, "who tried has left: the next one tries"


async def test_a_prefill_worker_that_has_just_come_gets_its_share_little_by_little() -> None:
    decode = FakeDecodeWorker()
    async with router(decode) as plane:
        old, new = prefill_member("prefill-old"), prefill_member("prefill-new")
        for member in (old, new):
            await plane.store.join(member)
        for _ in range(100):
            plane.fleet.note_handoff(old.key, False, reader=decode.member().key)
        assert window(plane, "prefill-old", "prefill") == 64
        tasks = [asyncio.create_task(collect(plane, request(f"r{n}"))) for n in range(6)]
        await until(lambda: len(decode.submitted) == 6)
        first = [submit.prefill[0].worker_id for submit in decode.submitted]
        assert first.count("prefill-new") == 1, "by load it would have had half of them"
        plane.fleet.note_handoff(new.key, False, reader=decode.member().key)
        assert window(plane, "prefill-new", "prefill") == 2
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
