"""Answers leave a worker that drains where that costs nobody anything; otherwise they stay."""

import asyncio
from contextlib import aclosing

import pytest

from cluster.identity import Role
from cluster.sampling import SamplingParams
from router.control.plane import FleetPlane
from router.dispatch import evacuation
from router.dispatch.stream import ChoiceTokens, RoutedRequest
from tests.router.dispatch_bench import PROMPT, time_limits
from tests.router.fake_decode_worker import until
from tests.router.model_worker import ModelWorker, Trouble, says_nothing_more
from tests.router.streams_bench import KINDS, LENGTH, Bench, bench

LOOKS = 3
HELD = Trouble(5, says_nothing_more)


class Looks:
    """How often the evacuation was asked since."""

    def __init__(self, plane: FleetPlane, patch: pytest.MonkeyPatch) -> None:
        self.num = 0
        patch.setattr(evacuation, "LOOK_INTERVAL_S", 0.01)
        look = plane.source._evacuation._look_at
        patch.setattr(
            plane.source._evacuation, "_look_at", lambda worker: self._count(look, worker)
        )

    def _count(self, look, worker) -> None:  # type: ignore[no-untyped-def]
        self.num += 1
        look(worker)

    async def some(self) -> None:
        """A few more."""
        least = self.num + LOOKS
        await until(lambda: self.num >= least)


async def begin(here: Bench, *names: str) -> list[asyncio.Task[object]]:
    """Answers of the only worker, which says no more after five tokens."""
    evacuation, before = here.plane.source._evacuation, here.plane.source._evacuation.num_staying
    asked = [asyncio.create_task(here.ask(name, KINDS["one choice"], HELD)) for name in names]
    await until(lambda: evacuation.num_staying == before + len(names))
    return asked  # type: ignore[return-value]


async def joined(here: Bench, worker: ModelWorker, **values: object) -> None:
    await here.plane.store.join(worker.member(**values))
    await until(lambda: len(here.plane.fleet.open(Role.DECODE)) == 2)


def says_the_rest(worker: ModelWorker, request_id: str) -> None:
    [submit] = [item for item in worker.submitted if item.request_id == request_id]
    for frame in [*worker.frames_of(submit)][HELD.after :]:
        worker.send(frame)


async def test_nobody_leaves_for_a_worker_that_fails_its_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench(1) as here, ModelWorker("decode-failing", here.troubles) as failing:
        looks, names = Looks(here.plane, monkeypatch), [f"r{number}" for number in range(6)]
        asked = await begin(here, *names)
        await joined(here, failing)
        here.plane.fleet.note_request(failing.member().key, failed=True)
        await here.drain(here.workers[0])
        await looks.some()
        assert here.workers[0].cancelled == failing.submitted == []
        for name in names:
            says_the_rest(here.workers[0], name)
        await asyncio.gather(*asked)


async def test_they_leave_once_that_worker_is_well_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(1) as here, ModelWorker("decode-other", here.troubles) as other:
        looks = Looks(here.plane, monkeypatch)
        asked = await begin(here, "r1", "r2")
        await joined(here, other)
        here.plane.fleet.note_request(other.member().key, failed=True)
        await here.drain(here.workers[0])
        await looks.some()
        here.plane.fleet.note_request(other.member().key, failed=False)
        await asyncio.gather(*asked)
        assert len(other.submitted) == 2


async def test_nobody_leaves_for_a_worker_without_room_for_the_length_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench(1) as here, ModelWorker("decode-small", here.troubles) as small:
        looks = Looks(here.plane, monkeypatch)
        [answering] = await begin(here, "r1")
        await joined(here, small, max_context_tokens=len(PROMPT) + LENGTH - 1)
        await here.drain(here.workers[0])
        await looks.some()
        says_the_rest(here.workers[0], "r1")
        await answering
        assert small.submitted == []


class SlowClient:
    """Reads the first tokens, and more when it is told to."""

    def __init__(self, plane: FleetPlane, name: str) -> None:
        self._events = plane.source.generate(
            RoutedRequest(
                request_id=name,
                token_ids=list(PROMPT),
                sampling=SamplingParams(max_tokens=LENGTH, seed=7),
                limits=time_limits(60.0),
            )
        )
        self.num_tokens = 0
        self.may_read = asyncio.Event()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                self.num_tokens += len(event.tokens) if isinstance(event, ChoiceTokens) else 0
                await self.may_read.wait()


@pytest.mark.parametrize("has_ended", [True, False], ids=["complete", "unfinished"])
async def test_clients_that_do_not_read_keep_nobody_from_leaving(has_ended: bool) -> None:
    async with bench(1) as here, ModelWorker("decode-other", here.troubles) as other:
        names = [f"slow{number}" for number in range(2 * evacuation.MAX_MOVING)]
        here.troubles |= {} if has_ended else {name: [HELD] for name in names}
        slow = [SlowClient(here.plane, name) for name in names]
        await until(lambda: all(client.num_tokens for client in slow))
        asked = await begin(here, *(f"r{number}" for number in range(2 * evacuation.MAX_MOVING)))
        await joined(here, other)
        await here.drain(here.workers[0])
        await asyncio.gather(*asked)
        assert not [item for item in other.submitted if item.request_id in names]
        for client in slow:
            client.may_read.set()
        await asyncio.gather(*(client.reading for client in slow))
        assert all(client.num_tokens == LENGTH for client in slow)
        assert len(other.submitted) == len(asked) + (0 if has_ended else len(slow))
