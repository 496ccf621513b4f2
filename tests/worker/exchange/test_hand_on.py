"""What one worker has cached goes to another, whatever the roles: over real engines without a
model, the real transfer code and real gRPC."""

from __future__ import annotations

import asyncio
import threading

import grpc
import pytest
from msgspec import structs

from cluster.errors import ContextTooLong
from cluster.rpc import open_channel
from cluster.sampling import SamplingParams
from cluster.wire import sampling_to_wire
from protos import handoff_pb2, handoff_pb2_grpc, worker_pb2, worker_pb2_grpc
from tests.decode_worker.engine_thread import BLOCK_SIZE
from tests.decode_worker.thread_fleet import (
    ROOT,
    counted,
    expected,
    prompt_of,
    received,
    running_fleet,
)
from worker.exchange.choice import choose

GREEDY = SamplingParams(max_tokens=6, temperature=0.0)
PREFIX = prompt_of(8 * BLOCK_SIZE)
PROMPT = [*PREFIX, 1, 2, 3]
LIMIT_S = 20.0


@pytest.fixture
async def fleet():
    async with running_fleet() as running:
        yield running


def worker_of(fleet, name):
    return fleet.decode if name == "decode-0" else fleet.prefill[int(name[-1])]


async def computed_at(worker, prefix=PREFIX) -> None:
    """It has the prefix cached, and nobody else has."""
    async with open_channel(worker.address) as channel:
        call = handoff_pb2_grpc.PrefillWorkerStub(channel).Prefill(
            handoff_pb2.PrefillRequest(
                request_id="before",
                incarnation=worker.key.incarnation,
                token_ids=prefix,
                sampling=sampling_to_wire(SamplingParams(max_tokens=2, temperature=0.0)),
                cache_root=ROOT,
            )
        )
        async for event in call:
            if event.HasField("done"):
                break
        call.cancel()


async def prepare(fleet, source) -> None:
    if source is fleet.decode:
        await fleet.submit("before", [*PREFIX, 9], SamplingParams(max_tokens=1), [])
        await fleet.router.ended("before")
    else:
        await computed_at(source)
    await fleet.all_empty()


async def handed_on(source, *receivers, room_tokens=10_000, max_bytes=0, limit_s=LIMIT_S):
    order = worker_pb2.HandOnRequest(
        source=source.target,
        receivers=[
            worker_pb2.CacheReceiver(worker=each.target, room_tokens=room_tokens)
            for each in receivers
        ],
        max_bytes=max_bytes,
    )
    async with open_channel(source.address) as channel:
        return await worker_pb2_grpc.PrefixCacheStub(channel).HandOn(order, timeout=limit_s)


async def answered_with(fleet, receiver) -> worker_pb2.Ended:
    """A request that begins with the prefix, at the receiver."""
    targets = [] if receiver is fleet.decode else [receiver]
    await fleet.submit("after", PROMPT, GREEDY, targets)
    ended = await fleet.router.ended("after")
    assert ended.error.code == ""
    assert received(fleet.router, "after") == expected(PROMPT, GREEDY)
    return ended


async def test_a_prefix_of_an_adapter_is_still_its_own_where_it_was_handed_on_to(
    fleet, monkeypatch
):
    source, receiver, digest = fleet.prefill[0], fleet.prefill[1], "ab" * 16
    await computed_at(source)
    warm = await source.engine.warm()
    blocks = [
        structs.replace(each, block=structs.replace(each.block, adapter=digest))
        for each in warm.blocks
    ]

    async def adapted():
        return structs.replace(warm, blocks=blocks)

    monkeypatch.setattr(source.engine, "warm", adapted)
    [got] = (await handed_on(source, receiver)).receivers
    assert (got.handed_tokens, got.problem) == (len(PREFIX), "")
    kept = await receiver.engine.snapshot()
    assert [block.adapter for block in kept] == [digest] * len(blocks) != []


@pytest.mark.parametrize(
    ("giver", "taker"),
    [
        ("prefill-0", "prefill-1"),
        ("prefill-0", "decode-0"),
        ("decode-0", "prefill-1"),
    ],
)
async def test_a_prefix_is_found_where_it_was_handed_on_to_and_the_text_is_the_same(
    fleet, giver, taker
):
    source, receiver = worker_of(fleet, giver), worker_of(fleet, taker)
    await prepare(fleet, source)
    report = await handed_on(source, receiver)
    [got] = report.receivers
    assert (got.worker_id, got.problem) == (taker, "")
    assert got.handed_tokens == len(PREFIX) == report.cached_tokens
    assert got.num_bytes > 0
    assert counted(source, "prefix_moved_tokens") == {"out": len(PREFIX)}
    assert counted(receiver, "prefix_moved_tokens") == {"in": len(PREFIX)}
    await fleet.all_empty()
    ended = await answered_with(fleet, receiver)
    if giver != "decode-0":  # whose own cache has it, else
        assert ended.usage.cached_tokens == len(PREFIX)
    again = await handed_on(source, receiver)
    [got] = again.receivers
    more = again.cached_tokens - len(PREFIX)  # of a decode worker: its answer
    assert (got.handed_tokens, got.known_tokens) == (more, len(PREFIX))
    await fleet.all_empty()


async def test_what_has_no_room_is_left_and_bytes_are_a_limit_too(fleet):
    source, receiver = fleet.prefill
    await prepare(fleet, source)
    report = await handed_on(source, receiver, room_tokens=3 * BLOCK_SIZE)
    assert [each.handed_tokens for each in report.receivers] == [3 * BLOCK_SIZE]
    whole = await handed_on(source, receiver)
    bytes_each = whole.receivers[0].num_bytes // (len(PREFIX) // BLOCK_SIZE - 3)
    limited = await handed_on(source, fleet.decode, max_bytes=2 * bytes_each)
    assert [each.handed_tokens for each in limited.receivers] == [2 * BLOCK_SIZE]
    await fleet.all_empty()


async def test_the_loop_runs_on_while_it_is_chosen_what_goes_where(fleet, monkeypatch):
    source, receiver = fleet.prefill
    await prepare(fleet, source)
    loop, asked, answered = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def choose_late(tree, max_blocks):
        loop.call_soon_threadsafe(asked.set)
        assert answered.wait(LIMIT_S), "the loop stands"
        return choose(tree, max_blocks)

    monkeypatch.setattr("worker.exchange.hand_on.choose", choose_late)
    handing = asyncio.create_task(handed_on(source, receiver))
    await asked.wait()
    answered.set()
    assert [each.handed_tokens for each in (await handing).receivers] == [len(PREFIX)]


async def test_of_two_orders_at_once_one_waits_and_nothing_goes_twice(fleet):
    source, receiver = fleet.prefill
    await prepare(fleet, source)
    reports = await asyncio.gather(*(handed_on(source, receiver) for _ in range(2)))
    got = sorted(report.receivers[0].handed_tokens for report in reports)
    assert got == [0, len(PREFIX)]
    await fleet.all_empty()


async def test_two_that_leave_at_once_are_not_promised_the_same_room(fleet, monkeypatch):
    num_blocks = len(PREFIX) // BLOCK_SIZE
    monkeypatch.setattr(
        "worker.exchange.promised_room.room_blocks", lambda load: num_blocks + num_blocks // 2
    )
    for index, source in enumerate(fleet.prefill):
        await computed_at(source, [index + 1, *PREFIX[1:]])
    await fleet.all_empty()
    reports = await asyncio.gather(*(handed_on(source, fleet.decode) for source in fleet.prefill))
    got = sorted((report.receivers[0] for report in reports), key=lambda each: each.handed_tokens)
    assert [each.handed_tokens for each in got] == [0, len(PREFIX)]
    assert "promised to nobody" in got[0].problem
    await fleet.all_empty()


async def test_a_prefix_that_a_receiver_refuses_keeps_no_other_from_it(fleet, monkeypatch):
    source, receiver = fleet.prefill
    await computed_at(source, short := [7] * (2 * BLOCK_SIZE))
    await prepare(fleet, source)  # the long one is the warmest

    def check_short(token_ids, **limits):
        if len(token_ids) > len(short):
            raise ContextTooLong(f"{len(token_ids)} tokens are too many")

    monkeypatch.setattr("worker.exchange.keeper.check_prefix", check_short)
    [got] = (await handed_on(source, receiver)).receivers
    assert got.handed_tokens == len(short)
    assert got.problem == f"{len(PREFIX)} tokens are too many"
    await fleet.all_empty()


async def test_blocks_that_do_not_verify_are_not_kept(fleet):
    source, receiver = fleet.prefill
    await prepare(fleet, source)
    fleet.faults.corrupts = True
    [got] = (await handed_on(source, receiver)).receivers
    assert got.problem
    fleet.faults.corrupts = False
    await answered_with(fleet, receiver)
    await fleet.all_empty()


async def test_a_prefix_that_cannot_be_handed_on_is_no_prompt_that_failed(fleet):
    source, receiver = fleet.prefill
    request = handoff_pb2.PrefillRequest(
        request_id="x", incarnation="another", token_ids=PREFIX, cache_root=ROOT, cached_only=True
    )
    async with open_channel(source.address) as channel:
        call = handoff_pb2_grpc.PrefillWorkerStub(channel).Prefill(request)
        with pytest.raises(grpc.aio.AioRpcError, match="it restarted"):
            await call.read()
        assert counted(source, "requests") == {}
        request.cached_only = False
        call = handoff_pb2_grpc.PrefillWorkerStub(channel).Prefill(request)
        with pytest.raises(grpc.aio.AioRpcError, match="it restarted"):
            await call.read()
    assert counted(source, "requests") == {"wrong_worker": 1}
    await prepare(fleet, source)
    before = counted(source, "requests")
    fleet.faults.corrupts = True
    [got] = (await handed_on(source, receiver)).receivers
    assert got.problem
    assert counted(source, "requests") == before and counted(receiver, "requests") == {}


async def test_a_receiver_that_is_gone_costs_only_its_own_part(fleet):
    source, receiver = fleet.prefill
    await prepare(fleet, source)
    await receiver.server.stop(0)
    report = await handed_on(source, receiver)
    [got] = report.receivers
    assert got.handed_tokens == 0 and got.problem
    assert await source.is_empty()


async def test_a_source_that_dies_in_the_middle_leaves_nothing_behind_at_the_receiver(fleet):
    source, receiver = fleet.prefill
    await prepare(fleet, source)
    fleet.faults.stands = True
    asked = asyncio.create_task(handed_on(source, receiver))
    async with asyncio.timeout(LIMIT_S):
        while receiver.engine.load.receiving_blocks == 0:
            await asyncio.sleep(0)
    await source.server.stop(0)
    with pytest.raises(grpc.aio.AioRpcError):
        await asked
    fleet.faults.stands = False
    async with asyncio.timeout(LIMIT_S):
        while not await receiver.is_empty():
            await asyncio.sleep(0)
    assert (await receiver.engine.violations()) == []


async def test_a_worker_that_drains_hands_on_and_takes_nothing_over(fleet):
    source, receiver = fleet.prefill
    await prepare(fleet, source)
    receiver.drain()
    [refused] = (await handed_on(source, receiver)).receivers
    assert refused.handed_tokens == 0 and "drain" in refused.problem
    source.drain()
    [got] = (await handed_on(source, fleet.decode)).receivers
    assert got.handed_tokens == len(PREFIX)


async def test_a_decode_worker_computes_no_prompt_for_others(fleet):
    async with open_channel(fleet.decode.address) as channel:
        call = handoff_pb2_grpc.PrefillWorkerStub(channel).Prefill(
            handoff_pb2.PrefillRequest(
                request_id="x", incarnation=fleet.decode.key.incarnation, token_ids=[1, 2]
            )
        )
        with pytest.raises(grpc.aio.AioRpcError, match="computes no prompt"):
            await call.read()
