"""A worker that has just come is not flooded while it is cold."""

import asyncio

from router.fleet.slow_start import OPEN_AT, SlowStart
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, ended_frame, tokens_frame, until


def test_the_window_grows_by_one_with_each_success_until_there_is_no_limit() -> None:
    start = SlowStart()
    assert start.has_room(0) and not start.has_room(1)
    start.succeeded()
    assert start.has_room(1) and not start.has_room(2)
    for _ in range(OPEN_AT):
        start.succeeded()
    assert start.has_room(10_000)
    start.failed()
    assert not start.is_proven and not start.has_room(1)


async def test_a_newcomer_gets_one_request_until_it_has_answered_and_the_old_one_the_rest() -> None:
    old, new = FakeDecodeWorker("decode-old", answer_at_once=True), FakeDecodeWorker("decode-new")
    async with new, router(old) as plane:
        for number in range(10):
            await collect(plane, request(f"warm{number}"))
        await plane.store.join(new.member())
        await until(lambda: len(plane.fleet.members) == 2 and not plane.fleet.members[1].is_cut_off)
        old.answer_at_once = False
        tasks = [asyncio.create_task(collect(plane, request(f"r{n}"))) for n in range(9)]
        await until(lambda: len(old.submitted) + len(new.submitted) == 19)
        assert len(new.submitted) == 1  # by load it would have had more
        for worker, submits in ((new, new.submitted), (old, old.submitted[10:])):
            for submit in submits:
                worker.send(tokens_frame(submit.request_id, 5, 6, last=True))
                worker.send(ended_frame(submit.request_id, made=2))
        await asyncio.gather(*tasks)
        assert plane.fleet.members[1].slow_start.has_room(1)
