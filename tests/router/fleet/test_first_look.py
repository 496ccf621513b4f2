"""When clients may come to a router that has just started."""

from __future__ import annotations

from typing import Any, cast

from msgspec import structs

from cluster.generation import EngineLoad
from cluster.wire import load_to_wire
from protos import membership_pb2
from router.fleet.first_look import HEAR_ALL_S, FirstLook
from tests.manual_clock import ManualClock
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.planes import prefill_member

WAIT_S = 7.0


async def test_a_router_is_ready_once_all_its_workers_have_told_what_they_have_cached() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router() as plane, worker:
        assert plane.why_not_ready() == "no decode worker has joined"
        pub, replay = await worker.start_events()
        told = {"kv_events_address": pub, "kv_replay_address": replay}
        await plane.store.join(worker.member(**told))
        await until(lambda: plane.why_not_ready() is None)
        assert plane._followers.knows(worker.member(**told).key)
        late = prefill_member(kv_events_address="tcp://127.0.0.1:9")
        await plane.store.join(late)
        assert plane.why_not_ready() is None  # it is learned while others are served
        await collect(plane, structs.replace(request(), request_id="served"))


async def test_a_worker_that_tells_nothing_holds_up_nobody_for_long() -> None:
    clock = ManualClock()
    async with router(FakeDecodeWorker()) as plane:
        look = FirstLook(plane.fleet, plane._followers, clock, WAIT_S)
        silent = prefill_member(
            kv_events_address="tcp://127.0.0.1:9", kv_replay_address="tcp://127.0.0.1:9"
        )
        await plane.store.join(silent)
        assert look.why_not_ready() == "what 1 of 1 workers have cached is not known yet"
        clock.advance(WAIT_S - 0.1)
        assert look.why_not_ready() is not None
        clock.advance(0.1)
        assert look.why_not_ready() is None


async def test_workers_that_other_routers_have_are_waited_for_as_long() -> None:
    clock, missing = ManualClock(), ["2 workers of other routers have not joined here"]
    async with router(FakeDecodeWorker()) as plane:
        look = FirstLook(plane.fleet, plane._followers, clock, WAIT_S, lambda: missing[0])
        assert look.why_not_ready() == missing[0]
        look_on = FirstLook(plane.fleet, plane._followers, clock, WAIT_S, lambda: None)
        assert look_on.why_not_ready() is None
        clock.advance(WAIT_S)
        assert look.why_not_ready() is None


async def test_a_router_that_was_started_again_waits_for_all_who_were_there_before() -> None:
    """The first one is back, and the second has not asked again yet."""
    clock = ManualClock()
    async with router(FakeDecodeWorker()) as plane:
        look = FirstLook(plane.fleet, plane._followers, clock, WAIT_S)
        look.hear_former()
        assert look.why_not_ready() == (
            "workers of the router before this one may not have come back yet"
        )
        clock.advance(HEAR_ALL_S - 0.1)
        look.hear_former()
        assert look.why_not_ready() is not None
        clock.advance(0.1)
        assert look.why_not_ready() is None


async def test_a_beat_of_who_has_not_joined_says_that_there_was_a_router_before() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router() as plane, worker:
        beat = membership_pb2.BeatRequest(worker_id=worker.worker_id, incarnation="earlier")
        beat.load.CopyFrom(load_to_wire(EngineLoad()))
        reply = await plane._service.Beat(beat, cast(Any, None))
        assert not reply.known
        await plane.store.join(worker.member())
        await until(lambda: plane.fleet.why_not_ready() is None)
        assert "the router before this one" in (plane.why_not_ready() or "")
