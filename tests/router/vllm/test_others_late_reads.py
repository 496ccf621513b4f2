"""What one request's late read leaves in a decode server's cache reaches no other request.

In all of them r1 is the one whose blocks are read late: at 7.5 s of a lease that is over after
6.5 s, as the router was told or not.
"""

from __future__ import annotations

import asyncio

import pytest

from cluster.errors import TransferFailed
from router.fleet.request_stream import RequestStream
from router.fleet.unread import ChoiceTokens
from router.vllm.server import salt_of
from tests.router.vllm.fake_vllm import answer_to
from tests.router.vllm.linked import PROMPT, Pair, heard_of
from tests.router.vllm.test_cache_doubts import ROOT, salts_of
from tests.router.vllm.test_link import virtually

RIGHT = answer_to(PROMPT, 5)
READ_S = 7.5


def now_s() -> float:
    return asyncio.get_running_loop().time()


def read_late(*, told_s: float = 6.0) -> tuple[Pair, RequestStream]:
    """r1 is on its way. Told more than 6 s, the router has only the counter to go by."""
    pair = Pair(lease_s=told_s)
    pair.prefill.manners.lease_s, pair.decode.manners.door_s = 6.0, 7.0
    pair.prefill.manners.counts_late = told_s > 6.0
    return pair, pair.submit()


def slow_page(pair: Pair, page_s: float) -> list[float]:
    """When the prefill server's page was asked for, of which each takes so long."""
    get, asked = pair.prefill.get, list[float]()

    async def slow(path: str, *, timeout_s: float) -> object:
        asked.append(now_s())
        await asyncio.sleep(page_s)
        return await get(path, timeout_s=timeout_s)

    pair.prefill.get = slow  # type: ignore[method-assign,assignment]
    return asked


@pytest.mark.parametrize("asked_s", [0.6, READ_S + 0.01, READ_S + 0.5])
@pytest.mark.parametrize("num", [1, 2])
@virtually
async def test_a_request_alone_is_made_again_whenever_it_came_before_the_verdict(
    asked_s: float, num: int
) -> None:
    """In line beside the read; after it, before its first token; and while that is on its way."""
    pair, late = read_late()
    pair.decode.manners.token_s = 1.0
    await asyncio.sleep(asked_s)
    pair.decode.manners.door_s = max(0.0, READ_S + 0.1 - asked_s)
    other = pair.submit(alone=num == 1, n=num, request_id="r2")
    heard, found = await asyncio.gather(heard_of(late), heard_of(other))
    assert heard.ids() == RIGHT
    assert [found.ids(choice) for choice in range(num)] == [RIGHT] * num
    assert pair.num_doubts == 1


@virtually
async def test_a_verdict_that_is_there_already_holds_for_who_was_asked_before_it() -> None:
    pair, late = read_late()
    pair.decode.manners.token_s = 1.0
    await asyncio.sleep(READ_S + 0.9)
    pair.decode.manners.door_s = 0.0
    other = pair.submit(alone=True, request_id="r2")  # finds the blocks; judged after r1
    assert (await heard_of(late)).ids() == (await heard_of(other)).ids() == RIGHT
    assert pair.num_doubts == 1 and len(set(salts_of(pair))) == 3  # the last is r2's own


@virtually
async def test_a_request_with_its_own_blocks_is_not_believed_for_them_alone() -> None:
    """Its own read is good; what the server had cached before it is not."""
    pair, late = read_late()
    pair.decode.manners.token_s = 1.0
    await asyncio.sleep(READ_S + 0.01 - pair.prefill.manners.prefill_s)
    pair.decode.manners.door_s = 0.0
    other = pair.submit(request_id="r2")
    assert (await heard_of(other)).ids() == (await heard_of(late)).ids() == RIGHT
    assert pair.num_doubts == 1 and pair.handoffs == [("vllm-p:1", True)]  # of r1's read alone


@virtually
async def test_while_the_counter_is_asked_nobody_else_is_believed() -> None:
    pair, late = read_late(told_s=20.0)
    asked = slow_page(pair, 1.0)
    await asyncio.sleep(READ_S + 0.1)
    pair.decode.manners.door_s = 0.0
    others = [pair.submit(alone=True, request_id=f"r{number}") for number in (2, 3, 4)]
    for stream in (late, *others):
        assert (await heard_of(stream)).ids() == RIGHT
    assert pair.num_doubts == 1 and len(asked) <= 2


@virtually
async def test_a_late_reader_that_leaves_leaves_its_blocks_to_nobody() -> None:
    """The counter is asked beside all requests, and what comes meanwhile is not believed."""
    pair, late = read_late(told_s=20.0)
    pair.decode.manners.token_s = 1.0
    slow_page(pair, 1.9)
    await asyncio.sleep(READ_S + 0.1)
    late.close()
    await asyncio.sleep(0.1)
    pair.decode.manners.door_s, pair.decode.manners.token_s = 0.0, 0.02
    assert (await pair.answer(alone=True, request_id="r2")).ids() == RIGHT
    assert pair.num_doubts == 1


@virtually
async def test_nobody_waits_where_no_read_could_have_been_late() -> None:
    """One is open, and young: no page is looked at, and the answer takes what it always takes."""
    pair = Pair(lease_s=30.0)
    asked = slow_page(pair, 1.0)
    pair.decode.manners.door_s = 5.0
    young = pair.submit()
    await asyncio.sleep(1.0)
    pair.decode.manners.door_s, began_s = 0.0, now_s()
    assert (await pair.answer(alone=True, request_id="r2")).ids() == RIGHT
    assert now_s() - began_s == pytest.approx(0.5 + 5 * 0.02) and not asked
    assert (await heard_of(young)).ids() == RIGHT and pair.num_doubts == 0


@virtually
async def test_a_read_that_stays_in_line_holds_others_for_two_looks_at_most() -> None:
    pair = Pair(lease_s=30.0)
    pair.decode.manners.door_s = 1e6
    pair.submit()
    asked = slow_page(pair, 2.0)
    await asyncio.sleep(15.0)
    pair.decode.manners.door_s, began_s = 0.0, now_s()
    first = pair.submit(alone=True, request_id="r2")
    await asyncio.sleep(0.1)
    second = pair.submit(alone=True, request_id="r3")
    tokens = await asyncio.gather(first.next(), second.next())
    assert now_s() - began_s < 0.7 + 2 * 2.0 and len(asked) == 2 and pair.num_doubts == 0
    for stream, told in zip((first, second), tokens, strict=True):
        assert isinstance(told, ChoiceTokens)
        assert [told.tokens[0].token_id, *(await heard_of(stream)).ids()] == RIGHT
    assert len(asked) == 2  # of the decode server alone, while they go on


@virtually
async def test_a_read_whose_lease_has_passed_in_line_is_doubted_and_not_waited_for() -> None:
    pair = Pair(lease_s=30.0)
    pair.decode.manners.door_s = 1e6
    pair.submit()
    await asyncio.sleep(40.0)
    pair.decode.manners.door_s, began_s = 0.0, now_s()
    assert (await pair.answer(alone=True, request_id="r2")).ids() == RIGHT
    assert now_s() - began_s < 2.0 and pair.num_doubts == 1
    assert len(pair.decode.asked) == 3  # r2 found nothing of it, which nobody could know
    assert (await pair.answer(alone=True, request_id="r3")).ids() == RIGHT
    assert len(pair.decode.asked) == 4


@pytest.mark.parametrize("after_s", [0.1, 3.0, 15.0, 40.0])
@virtually
async def test_no_read_stays_open_when_its_request_has_ended(after_s: float) -> None:
    pair = Pair(lease_s=30.0)
    pair.decode.manners.door_s = 1e6
    stream = pair.submit()
    await asyncio.sleep(after_s)
    stream.close()
    await asyncio.sleep(1.0)
    assert pair.link.num_open_reads == 0
    assert pair.num_doubts == (after_s == 40.0)


@virtually
async def test_a_link_that_closes_doubts_what_nobody_has_judged() -> None:
    pair = Pair(lease_s=30.0)
    pair.decode.manners.door_s = 1e6
    stream = pair.submit()
    slow_page(pair, 1e6)
    await asyncio.sleep(15.0)
    stream.close()
    await asyncio.sleep(0)
    await pair.link.close("has left the fleet")
    assert pair.link.num_open_reads == 0 and pair.num_doubts == 1


@virtually
async def test_who_leaves_while_a_page_is_asked_for_has_nobody_doubted() -> None:
    pair = Pair(lease_s=30.0)
    pair.decode.manners.door_s = 1e6
    pair.submit()
    asked = slow_page(pair, 1.0)
    await asyncio.sleep(15.0)
    pair.decode.manners.door_s = 0.0
    first, second = (pair.submit(alone=True, request_id=name) for name in ("r2", "r3"))
    await asyncio.sleep(0.6)  # both first tokens are there
    assert len(asked) == 1
    first.close()
    assert (await heard_of(second)).ids() == RIGHT and pair.num_doubts == 0


@virtually
async def test_a_second_doubt_does_not_have_a_request_made_a_third_time_for_nothing() -> None:
    """Asked again it has a salt of its own, under which nobody reads anything."""
    pair, late = read_late()
    pair.decode.manners.token_s = 1.0
    await asyncio.sleep(READ_S + 0.01)
    pair.decode.manners.door_s = 0.0
    other = pair.submit(alone=True, request_id="r2")
    await asyncio.sleep(1.2)
    pair.server.doubt_cache()
    assert (await heard_of(other)).ids() == RIGHT
    assert (await heard_of(late)).ids() == RIGHT
    salts = salts_of(pair)
    assert salts[0] == salts[1] and len(salts) == 5 and len(set(salts)) == 4


@virtually
async def test_a_choice_that_begins_after_a_doubt_is_not_relayed() -> None:
    """vLLM begins each choice by itself: a later one may find what the first one could not."""
    pair = Pair()
    pair.decode.manners.says, pair.decode.manners.says_later = [chunk(0)], [chunk(1)]
    stream = pair.submit(alone=True, n=2)
    assert (await stream.next()) is not None
    pair.server.doubt_cache()
    with pytest.raises(TransferFailed, match="another request's blocks"):
        await heard_of(stream)
    assert len(pair.decode.asked) == 1


def chunk(choice: int) -> bytes:
    told = b'{"id":"c","choices":[{"index":%d,"text":"x","token_ids":[7],"finish_reason":null}]}'
    return told % choice


@virtually
async def test_what_a_gateway_sends_finds_nothing_that_was_read() -> None:
    """It stands in the server's line while something is read late, and cannot be asked again."""
    pair, late = read_late()
    salt = salt_of(bytes.fromhex(ROOT), pair.server.passed_end)
    body = {"prompt": PROMPT, "cache_salt": salt, "max_tokens": 5, "n": 1}
    pair.decode.manners.door_s = 8.0
    passed = pair.decode.stream("/v1/completions", body)
    pieces = [event async for events in passed for event in events]
    assert [b"%d" % token in piece for token, piece in zip(RIGHT, pieces, strict=False)] == [
        True
    ] * 5
    assert (await heard_of(late)).ids() == RIGHT and pair.num_doubts == 1
    assert salt_of(bytes.fromhex(ROOT), pair.server.passed_end) == salt
    assert salt not in salts_of(pair)[1:]
