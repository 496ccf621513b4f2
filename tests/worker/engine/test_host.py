"""Events of an engine reach who asked, once and in order."""

import asyncio

import pytest

from cluster.cache_change import CachedBlock
from cluster.errors import WorkerLost
from cluster.generation import GeneratedToken, Usage
from cluster.rank_facts import RankWait
from cluster.rank_pace import RankPace
from cluster.sampling import SamplingParams
from engine.contract.commands import WARM_PART_BLOCKS, Cancel, GenerateRequest, Inspect
from engine.contract.messages import Frame, Inspection, RequestEnded, TokenEvent
from engine.contract.warm_blocks import WarmBlock, WarmBlocks
from worker.engine.host import EngineHost
from worker.engine.scripted_link import ScriptedLink


class Listener:
    """Keeps what it gets; fails at the first token if told to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.events = []
        self.ended = asyncio.Event()
        self._fails = fails

    def receive(self, event) -> None:
        if self._fails and isinstance(event, TokenEvent):
            raise RuntimeError("a bug")
        self.events.append(event)
        if isinstance(event, RequestEnded):
            self.ended.set()


@pytest.fixture
async def link():
    return ScriptedLink()


@pytest.fixture
async def host(link):
    running = EngineHost(link)
    await running.start()
    yield running
    await running.stop()


def submit(host: EngineHost, listener: Listener) -> str:
    engine_id = host.name_for("a")
    host.submit(
        GenerateRequest(
            request_id=engine_id,
            token_ids=[1],
            sampling=SamplingParams(max_tokens=1),
            cache_root=bytes(16),
            timeout_ms=60_000.0,
        ),
        listener,
    )
    return engine_id


def token(engine_id: str) -> TokenEvent:
    return TokenEvent(engine_id, 0, GeneratedToken(3))


def ended(engine_id: str) -> RequestEnded:
    return RequestEnded(request_id=engine_id, usage=Usage(1, 1, 0))


async def test_a_request_gets_its_own_events_and_one_end(host, link):
    one, two = Listener(), Listener()
    first, second = submit(host, one), submit(host, two)
    link.say(Frame(tokens=[token(second), token(first)], ended=[ended(first)]))
    link.say(Frame(tokens=[token(first)], ended=[ended(first), ended(second)]))
    async with asyncio.timeout(5):
        await two.ended.wait()
    assert [type(event) for event in one.events] == [TokenEvent, RequestEnded]
    assert host.num_requests == 0


async def test_a_listener_that_fails_ends_its_request_alone(host, link):
    bad, good = Listener(fails=True), Listener()
    first, second = submit(host, bad), submit(host, good)
    link.say(Frame(tokens=[token(first), token(second)], ended=[ended(second)]))
    async with asyncio.timeout(5):
        await good.ended.wait()
        await bad.ended.wait()
    assert bad.events[-1].error_code == "internal_error"
    assert (await link.wait_for(Cancel)).request_id == first
    assert not host.lost.done()


async def test_an_engine_that_dies_ends_every_request_and_every_question(host, link):
    listener = Listener()
    submit(host, listener)
    asked = asyncio.create_task(host.violations())
    await link.wait_for(Inspect)
    link.die("exit code 1")
    with pytest.raises(WorkerLost, match="exit code 1"):
        await asked
    assert listener.events[-1].error_code == "worker_lost"
    late = Listener()
    submit(host, late)
    assert late.events[-1].error_code == "worker_lost"
    with pytest.raises(WorkerLost):
        await host.snapshot()


async def test_a_question_is_answered_by_the_frame_with_its_number(host, link):
    asked = asyncio.create_task(host.violations())
    inspect = await link.wait_for(Inspect)
    link.say(Frame(inspections=[Inspection(inspect.token + 7, ["not ours"], [])]))
    link.say(Frame(inspections=[Inspection(inspect.token, ["ours"], [])]))
    assert await asked == ["ours"]


async def test_the_warm_blocks_are_asked_for_part_by_part(host, link):
    asked = asyncio.create_task(host.warm())
    for count, first in enumerate((0, WARM_PART_BLOCKS), 1):
        inspect = await link.wait_for(Inspect, count)
        assert inspect.warm_from == first
        block = WarmBlock(CachedBlock(str(first).encode(), None, [first]), b"root", first)
        warm = WarmBlocks([block], WARM_PART_BLOCKS + 1, 7)
        link.say(Frame(inspections=[Inspection(inspect.token, [], [], warm)]))
    found = await asked
    assert [each.last_used for each in found.blocks] == [0, WARM_PART_BLOCKS]
    assert found.num_cached == 7


async def test_paces_of_ranks_are_those_of_the_latest_steps(host, link):
    def waits(num_plans: int, *seconds: float) -> list[RankWait]:
        return [
            RankWait(rank=rank, num_plans=num_plans, waited_s=waited_s, called_s=2 * waited_s)
            for rank, waited_s in enumerate(seconds)
        ]

    assert host.rank_paces == []
    seen = asyncio.Event()
    host.observe(lambda frame: seen.set() if not frame.rank_waits else None)
    for frame in (waits(100, 0.0, 0.0), waits(200, 0.5, 0.25), []):
        link.say(Frame(rank_waits=frame))
    async with asyncio.timeout(30):
        await seen.wait()
    assert host.rank_paces == [
        RankPace(rank=0, step_collectives_ms=10.0, step_wait_ms=5.0, step_skew_ms=0.0),
        RankPace(rank=1, step_collectives_ms=5.0, step_wait_ms=2.5, step_skew_ms=2.5),
    ]


async def test_frames_that_cannot_be_handled_end_the_engine_for_everybody(
    host: EngineHost, link: ScriptedLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    submit(host, listener)

    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(host, "_take", broken)
    link.say(Frame())
    async with asyncio.timeout(30):
        lost = await host.lost
    assert isinstance(lost, WorkerLost) and "a bug" in lost.message
    assert listener.events[-1].error_code == "worker_lost"


async def test_commands_that_cannot_be_sent_end_the_engine_for_everybody(
    host: EngineHost, link: ScriptedLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_command: object) -> None:
        raise OSError("no socket")

    monkeypatch.setattr(link, "send", broken)
    listener = Listener()
    submit(host, listener)
    async with asyncio.timeout(30):
        assert "no socket" in (await host.lost).message
    assert listener.events[-1].error_code == "worker_lost"


async def test_a_request_that_cannot_be_sent_to_the_engine_is_no_request_of_it(
    host, monkeypatch
) -> None:
    def full(command) -> None:
        raise MemoryError("no room for one more")

    monkeypatch.setattr(host, "send", full)
    with pytest.raises(MemoryError):
        submit(host, Listener())
    assert host.num_requests == 0
