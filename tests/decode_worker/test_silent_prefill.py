"""A prefill worker that is there and does nothing: given up in time, and the router hears of it."""

import asyncio
import time

import pytest

from cluster.errors import DeadlineExceeded
from engine.contract.commands import Abandon, Disconnect, Fetch, PrefillLocally
from tests.decode_worker.decode_bench import PAIRING, running_decode_worker
from tests.decode_worker.scripted_prefill import ScriptedStream, running_prefill

LIMIT_S = 0.3


@pytest.fixture
async def bench():
    async with running_decode_worker(progress_timeout_s=LIMIT_S) as running:
        yield running


@pytest.fixture
async def hung():
    async with running_prefill("prefill-hung", PAIRING) as prefill:
        yield prefill


@pytest.fixture
async def healthy():
    async with running_prefill("prefill-healthy", PAIRING) as prefill:
        yield prefill


async def hand_over(bench, stream: ScriptedStream) -> None:
    """Everything that a handoff needs."""
    stream.say_accepted()
    stream.say_blocks(0, 2)
    stream.say_first_token(7)
    stream.say_done()
    bench.fetched(await bench.link.wait_for(Fetch))
    await released(stream)


async def released(stream: ScriptedStream) -> None:
    async with asyncio.timeout(5):
        await stream.released.wait()


async def heard(bench, router) -> list[tuple[str, bool]]:
    """What the router was told of prefill workers, once the request has ended."""
    bench.end(await bench.submitted())
    assert not (await router.ended("a")).HasField("error")
    return [(item.worker_id, item.failed) for frame in router.frames for item in frame.handoffs]


async def test_a_source_that_says_nothing_is_given_up_and_the_next_one_goes_on(
    bench, hung, healthy
):
    router = bench.open_session()
    await router.submit("a", hung.target, healthy.target)
    bench.reserve(await bench.submitted())
    stuck = await hung.stream()
    await hand_over(bench, await healthy.stream())
    await released(stuck)
    assert await heard(bench, router) == [("prefill-hung", True), ("prefill-healthy", False)]
    assert not bench.link.told(PrefillLocally)


async def test_a_source_that_falls_silent_in_the_middle_is_given_up_too(bench, hung, healthy):
    router = bench.open_session()
    await router.submit("a", hung.target, healthy.target, num_tokens=12)
    bench.reserve(await bench.submitted(), num_blocks=3)
    stuck = await hung.stream()
    stuck.say_accepted()
    stuck.say_blocks(0, 2)
    bench.fetched(await bench.link.wait_for(Fetch))
    assert (await healthy.stream()).request.first_block == 2
    await released(stuck)


async def test_with_every_source_silent_the_prompt_is_computed_here(bench, hung, healthy):
    router = bench.open_session()
    await router.submit("a", hung.target, healthy.target)
    bench.reserve(await bench.submitted())
    await bench.link.wait_for(PrefillLocally)
    assert await heard(bench, router) == [("prefill-hung", True), ("prefill-healthy", True)]


async def test_a_handshake_that_hangs_counts_as_silence(bench, hung, healthy):
    hung.shakes_hands = False
    router = bench.open_session()
    await router.submit("a", hung.target, healthy.target)
    bench.reserve(await bench.submitted())
    await hand_over(bench, await healthy.stream())
    assert await heard(bench, router) == [("prefill-hung", True), ("prefill-healthy", False)]


async def test_sources_share_a_short_deadline_and_the_second_one_still_answers_within_it(
    hung, healthy
):
    async with running_decode_worker(progress_timeout_s=20.0) as bench:
        router = bench.open_session()
        await router.submit("a", hung.target, healthy.target, timeout_ms=4_500)
        bench.reserve(await bench.submitted())
        await hand_over(bench, await healthy.stream())
        assert await heard(bench, router) == [("prefill-hung", True), ("prefill-healthy", False)]


async def test_a_deadline_of_the_source_s_own_is_held_against_it(bench, hung):
    router = bench.open_session()
    await router.submit("a", hung.target)
    bench.reserve(await bench.submitted())
    (await hung.stream()).fail(DeadlineExceeded("the engine did not answer within 10 s"))
    await bench.link.wait_for(PrefillLocally)
    assert await heard(bench, router) == [("prefill-hung", True)]


async def test_others_reads_from_a_silent_source_go_on(bench, hung, healthy):
    """It may only be slow to us: its connection stays, and so does what others read."""
    router = bench.open_session()
    await router.submit("a", hung.target, healthy.target)
    bench.reserve(await bench.submitted())
    await hand_over(bench, await healthy.stream())
    assert not bench.link.told(Disconnect)
    await router.submit("b", hung.target)
    bench.reserve(await bench.submitted(2))
    await hung.stream(2)
    assert hung.num_handshakes == 1


async def test_a_prefill_worker_that_leaves_without_a_word_is_let_go_of(bench, hung, healthy):
    """No request finds it lost: its connection does."""
    router = bench.open_session()
    await router.submit("a", healthy.target)
    bench.reserve(await bench.submitted())
    await hand_over(bench, await healthy.stream())
    await healthy.die()
    assert (await bench.link.wait_for(Disconnect)).incarnation == healthy.incarnation


async def keep_saying_progress(stream: ScriptedStream) -> None:
    while True:
        stream.say_progress(100_000, tokens_ahead=8)
        await asyncio.sleep(LIMIT_S / 4)  # the interval that is being told of, no wait for anything


async def test_a_source_whose_engine_lives_and_never_starts_the_prompt_is_given_up(
    bench, hung, healthy
):
    router = bench.open_session()
    await router.submit("a", hung.target, healthy.target)
    bench.reserve(await bench.submitted())
    saying = asyncio.create_task(keep_saying_progress(await hung.stream()))
    await hand_over(bench, await healthy.stream())
    saying.cancel()
    assert await heard(bench, router) == [("prefill-hung", True), ("prefill-healthy", False)]


async def test_reads_from_a_source_that_was_given_up_are_given_up_too(bench, hung, healthy):
    router = bench.open_session()
    await router.submit("a", hung.target, healthy.target)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    stuck = await hung.stream()
    stuck.say_accepted()
    stuck.say_blocks(0, 2)
    await bench.link.wait_for(Fetch)
    abandoned = await bench.link.wait_for(Abandon)
    assert (abandoned.request_id, abandoned.incarnation) == (engine_id, hung.incarnation)


async def test_a_handshake_that_was_answered_while_our_own_loop_stood_is_no_silence(bench, healthy):
    """The answer is there when the loop goes on; the stall was ours."""
    connect = bench.service._parts.peers.connect
    router = bench.open_session()

    async def stands_meanwhile(target):
        asyncio.get_running_loop().call_soon(time.sleep, 5 * LIMIT_S)
        return await connect(target)

    bench.service._parts.peers.connect = stands_meanwhile
    await router.submit("a", healthy.target)
    bench.reserve(await bench.submitted())
    await hand_over(bench, await healthy.stream())
    assert await heard(bench, router) == [("prefill-healthy", False)]
