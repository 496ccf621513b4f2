"""What a source's stream means for its verdict."""

import asyncio

import pytest

from cluster.deadline import Deadline
from cluster.errors import InternalError, NoProgress, WorkerLost
from cluster.identity import WorkerKey
from cluster.sampling import SamplingParams
from decode_worker.handoff_plan import LEAST_PATIENCE_S, HandoffPlan
from decode_worker.prefill_source import PrefillSource
from decode_worker.remote_prompt import RemotePrompt
from decode_worker.source_patience import SourcePatience
from decode_worker.stage_times import StageTimes
from engine.contract.commands import GenerateRequest
from engine.contract.messages import Fetched, Reserved
from protos import handoff_pb2
from tests.decode_worker.decode_bench import PAIRING
from tests.decode_worker.fake_dialer import FakeLink
from tests.decode_worker.scripted_prefill import ScriptedStream
from tests.manual_clock import ManualClock
from worker.exchange.prefill_peers import PrefillPeer
from worker.exchange.source_blocks import BlockSizes

KEY = WorkerKey("prefill-a", "i0")


class Ear(SourcePatience):
    """Counts what is heard; silence is reached when the test says so."""

    def __init__(self) -> None:
        super().__init__(0.01, clock=ManualClock())
        self.num_heard = 0
        self.is_reached = False

    def heard(self, event: handoff_pb2.PrefillEvent) -> None:
        super().heard(event)
        self.num_heard += 1

    def tick(self) -> str | None:
        return "has made no progress for 0.0 s" if self.is_reached else None


def plan_of(clock: ManualClock, *, timeout_s: float = 60.0, progress_s: float = 3.0):
    request = GenerateRequest(
        request_id="a#1",
        token_ids=list(range(8)),
        sampling=SamplingParams(max_tokens=4),
        cache_root=bytes(16),
        timeout_ms=60_000.0,
    )
    return HandoffPlan(
        request_id="a",
        request=request,
        deadline=Deadline.after(timeout_s, clock),
        targets=(),
        progress_timeout_s=progress_s,
        vocab_size=64,
    )


class Pull:
    """One source at work; `stream` is what its worker says."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.ear, self.told = Ear(), []
        self.prompt = RemotePrompt("a#1", self.told.append, StageTimes(clock))
        self.link = FakeLink(KEY, PAIRING)
        peer = PrefillPeer(key=KEY, link=self.link, block_sizes=BlockSizes(4, 4))
        self.source = PrefillSource(
            peer, plan_of(clock), self.prompt, self.ear, sleep=asyncio.sleep
        )
        self.said = ScriptedStream(handoff_pb2.PrefillRequest())

    async def begin(self) -> asyncio.Task[None]:
        self.prompt.reserved(Reserved("a#1", 0, [0, 1]))
        await self.prompt.wait_reserved()
        pulling = asyncio.create_task(self.source.pull())
        await asyncio.sleep(0)
        self.link.streams[0].events = self.said.events
        return pulling

    def answer(self, *, error: str = "") -> None:
        fetched = Fetched("a#1", KEY.incarnation, 0, 0 if error else 2, 64, 1.0, error)
        self.prompt.answered(fetched)
        self.source.fetched(fetched)


async def heard(pull: Pull) -> None:
    async with asyncio.timeout(5):
        while not pull.said.events.empty():
            await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_every_event_of_a_source_s_stream_is_heard():
    pull = Pull()
    pulling = await pull.begin()
    for _ in range(5):
        pull.said.say_progress(1000)
    pull.said.say_accepted()
    pull.said.say_blocks(0, 2)
    await heard(pull)
    assert pull.ear.num_heard == 7
    pull.ear.is_reached = True
    with pytest.raises(NoProgress, match="prefill-a has made no progress"):
        await pulling
    assert pull.link.streams[0].is_closed


async def test_after_the_last_word_no_word_is_expected_and_reads_may_take_their_time():
    pull = Pull()
    pulling = await pull.begin()
    pull.said.say_blocks(0, 2)
    pull.said.say_first_token(7)
    pull.said.say_done()
    await heard(pull)
    pull.ear.is_reached = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(20 * pull.ear.interval_s):
            await asyncio.shield(pulling)
    pull.answer()
    await pulling
    assert pull.prompt.is_complete


async def test_a_stream_that_ends_before_its_reader_is_done_is_a_lost_worker():
    pull = Pull()
    pulling = await pull.begin()
    pull.link.streams[0].events.put_nowait(None)
    with pytest.raises(WorkerLost, match="ended the stream"):
        await pulling


async def test_a_bug_of_ours_in_an_event_ends_the_source_with_its_cause_and_not_in_silence():
    pull = Pull()
    pulling = await pull.begin()
    pull.prompt.offer = lambda span, incarnation: 1 / 0
    pull.said.say_blocks(0, 2)
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        await pulling


@pytest.mark.parametrize(
    ("timeout_s", "num_sources", "patience_s"),
    [
        (60.0, 3, 3.0),
        (3.0, 2, LEAST_PATIENCE_S),
        (9.0, 2, 3.0),
        (6.0, 2, 2.0),
        (0.5, 1, LEAST_PATIENCE_S),
    ],
)
def test_sources_share_what_is_left_of_the_deadline(timeout_s, num_sources, patience_s):
    plan = plan_of(ManualClock(), timeout_s=timeout_s)
    assert plan.patience_s(num_sources) == pytest.approx(patience_s)


async def test_a_request_that_leaves_in_the_middle_of_a_handoff_leaves_no_error_behind():
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: reported.append(str(found)))
    pull = Pull()
    pulling = await pull.begin()
    await asyncio.sleep(0)
    pulling.cancel()
    await asyncio.wait((pulling,))
    await asyncio.sleep(0)
    assert pulling.cancelled() and reported == []
