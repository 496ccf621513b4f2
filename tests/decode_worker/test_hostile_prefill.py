"""A prefill worker that lies: its source is given up, the next one goes on, nobody else notices."""

import asyncio
import math

import pytest

from cluster.generation import GeneratedToken
from cluster.wire import token_to_wire
from engine.contract.commands import Fetch, PrefillLocally, Seed
from protos import handoff_pb2, worker_pb2
from tests.decode_worker.decode_bench import PAIRING
from tests.decode_worker.scripted_prefill import DIGEST, running_prefill


@pytest.fixture
async def liar():
    async with running_prefill("prefill-liar", PAIRING) as prefill:
        yield prefill


@pytest.fixture
async def honest():
    async with running_prefill("prefill-honest", PAIRING) as prefill:
        yield prefill


def blocks(first_index=0, block_ids=(1,), generations=(1,), digests=DIGEST):
    ready = handoff_pb2.BlocksReady(
        first_index=first_index, block_ids=block_ids, generations=generations, digests=digests
    )
    return handoff_pb2.PrefillEvent(blocks_ready=ready)


def first_token(*tokens, queue_ms=0.0, prefill_ms=0.0):
    items = [handoff_pb2.ChoiceToken(choice=c, token=token_to_wire(t)) for c, t in tokens]
    first = handoff_pb2.FirstToken(tokens=items, queue_ms=queue_ms, prefill_ms=prefill_ms)
    return handoff_pb2.PrefillEvent(first_token=first)


GOOD = (0, GeneratedToken(7))
DONE = handoff_pb2.PrefillEvent(done=handoff_pb2.Done())
LIES = {
    "more generations than blocks": [blocks(generations=(1, 2))],
    "no generations": [blocks(generations=())],
    "digests of a strange length": [blocks(block_ids=(1, 2), generations=(1, 1), digests=b"odd")],
    "blocks beyond the prompt": [blocks(first_index=2)],
    "a first index beyond all bounds": [blocks(first_index=2**32 - 1)],
    "a hundred thousand blocks": [
        blocks(block_ids=range(100_000), generations=[1] * 100_000, digests=bytes(800_000))
    ],
    "a token outside the vocabulary": [first_token((0, GeneratedToken(2**31)))],
    "an alternative outside the vocabulary": [
        first_token((0, GeneratedToken(7, -1.0, ((2**31, -1.0),))))
    ],
    "a logprob that is no number": [first_token((0, GeneratedToken(7, math.nan)))],
    "a thousand alternatives": [first_token((0, GeneratedToken(7, -1.0, ((1, -1.0),) * 1000)))],
    "no token": [first_token()],
    "one choice twice": [first_token(GOOD, GOOD)],
    "another choice": [first_token((5, GeneratedToken(7)))],
    "a queue of NaN": [first_token(GOOD, queue_ms=math.nan)],
    "a prefill of less than nothing": [first_token(GOOD, prefill_ms=-1.0)],
    "an endless prefill": [first_token(GOOD, prefill_ms=math.inf)],
    "more cached tokens than the prompt has": [
        handoff_pb2.PrefillEvent(accepted=handoff_pb2.Accepted(cached_tokens=9))
    ],
    "scores that nobody asked for": [
        handoff_pb2.PrefillEvent(scored=handoff_pb2.ScoredTokens(first_index=1))
    ],
    "done before anything": [DONE],
    "done without blocks": [first_token(GOOD), DONE],
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_gives_up_its_source_and_the_next_one_goes_on(bench, liar, honest, lie):
    router = bench.open_session()
    await router.submit("a", liar.target, honest.target)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    for event in LIES[lie]:
        (await liar.stream()).say(event)
    stream = await honest.stream()
    async with asyncio.timeout(5):
        await liar.streams[0].released.wait()
    stream.say_blocks(0, 2)
    stream.say_first_token(7)
    stream.say_done()
    fetch = await bench.link.wait_for(Fetch)
    assert (fetch.incarnation, fetch.span.block_ids) == (honest.incarnation, [100, 101])
    bench.fetched(fetch)
    async with asyncio.timeout(5):
        await stream.released.wait()
    bench.end(engine_id)
    assert not (await router.ended("a")).HasField("error")
    assert len(bench.link.told(Seed)) == 1
    assert not bench.link.told(PrefillLocally)


async def test_repeated_and_overlapping_announcements_are_read_once(bench, liar):
    router = bench.open_session()
    await router.submit("a", liar.target, num_tokens=16)
    bench.reserve(await bench.submitted(), num_blocks=4)
    stream = await liar.stream()
    for first_index, count in ((0, 2), (0, 2), (1, 2), (0, 4), (3, 1), (0, 0)):
        stream.say_blocks(first_index, count)
    fetches = [await bench.link.wait_for(Fetch, count) for count in (1, 2, 3)]
    assert [(f.span.first_index, f.span.num_blocks) for f in fetches] == [(0, 2), (2, 1), (3, 1)]
    stream.say_first_token(7)
    await bench.link.wait_for(Seed)
    assert len(bench.link.told(Fetch)) == 3


async def test_a_second_first_token_changes_nothing(bench, liar):
    router = bench.open_session()
    await router.submit("a", liar.target)
    bench.reserve(await bench.submitted())
    stream = await liar.stream()
    stream.say_first_token(7)
    stream.say_first_token(8)
    stream.say_blocks(0, 2)
    await bench.link.wait_for(Fetch)
    assert [seed.tokens[0].token.token_id for seed in bench.link.told(Seed)] == [7]


@pytest.mark.parametrize("address", ["", "nowhere", "\x00:1", "☃:7", "x" * 4000 + ":1", "a:b:c"])
async def test_an_address_that_is_none_costs_only_a_fallback(bench, honest, address):
    target = worker_pb2.PrefillTarget(worker_id="odd", incarnation="odd-1", address=address)
    router = bench.open_session()
    await router.submit("a", target, honest.target)
    bench.reserve(await bench.submitted())
    await honest.stream()
