"""An answer whose server takes its blocks away and makes them anew, of what another one read late.

In all of them r1 is answered from the start, token by token; r2 has the same prompt, and its blocks
are read at 11 s, as the router may be told or not. Where r1 is preempted it loses its blocks at
some 6 s, and has new ones at 15 s, of what the server has cached by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from cluster.errors import SplitserveError, TransferFailed, WorkerLost
from router.fleet.request_stream import Ended, RequestStream
from router.vllm.wire import VllmAnswer
from tests.router.vllm.fake_vllm import PreemptionCount, answer_to
from tests.router.vllm.linked import PROMPT, Pair, heard_of
from tests.router.vllm.test_link import virtually

NUM_TOKENS = 20
RIGHT = answer_to(PROMPT, NUM_TOKENS)
NUM_BEFORE = 4
"""Tokens, of one a second, before it is preempted."""
TOLD = ["too late", "by the counter"]
COUNTED = [PreemptionCount.AT_ONCE, PreemptionCount.WITH_NEXT, PreemptionCount.NEVER]


async def told(stream: RequestStream, ids: list[int]) -> SplitserveError | None:
    """Adds what is relayed; the error with which it ends."""
    try:
        while not isinstance(message := await stream.next(), Ended):
            ids += [token.token_id for token in message.tokens]  # type: ignore[union-attr]
    except SplitserveError as error:
        return error
    return None


@asynccontextmanager
async def beside_a_late_read(
    *, lease_s: float = 6.0, read_lease_s: float = 6.0, preempts_at: int | None = NUM_BEFORE
) -> AsyncIterator[tuple[Pair, RequestStream, RequestStream]]:
    """`lease_s`: as the router is told; `read_lease_s`: as it is."""
    pair = Pair(lease_s=lease_s)
    pair.prefill.manners.lease_s = read_lease_s
    pair.decode.manners.token_s, pair.decode.manners.preempts_at = 1.0, preempts_at
    first = pair.submit(alone=True, max_tokens=NUM_TOKENS)
    await asyncio.sleep(1.6)  # it has its first token
    pair.decode.manners.door_s = 8.5
    second = pair.submit(request_id="r2")
    await asyncio.sleep(5.0)
    pair.decode.manners.preempts_at, pair.decode.manners.token_s = None, 0.02
    asyncio.get_running_loop().call_later(15.0 - 6.6, pair.decode.resumed.set)
    try:
        yield pair, first, second
    finally:
        first.close()
        second.close()


def first_token_of_r2_at_17(pair: Pair) -> None:
    manners = pair.decode.manners
    manners.token_s = 6.0
    asyncio.get_running_loop().call_later(5.0, setattr, manners, "token_s", 0.02)


@pytest.mark.parametrize("told_by", TOLD)
@pytest.mark.parametrize("counts", COUNTED)
@virtually
async def test_an_answer_made_anew_of_what_was_read_late_ends_before_a_wrong_token(
    told_by: str, counts: PreemptionCount
) -> None:
    lease_s = 6.0 if told_by == "too late" else 20.0
    async with beside_a_late_read(lease_s=lease_s) as (pair, first, second):
        pair.decode.manners.counts_preempted = counts
        ids: list[int] = []
        error, heard = await asyncio.gather(told(first, ids), heard_of(second))
    assert isinstance(error, TransferFailed) and "begun anew" in error.message
    assert ids == RIGHT[:NUM_BEFORE]
    assert heard.ids() == RIGHT[:5] and pair.num_doubts == 1
    assert pair.link.num_late_reads == 0


@virtually
async def test_before_there_is_a_verdict_nothing_of_it_is_told() -> None:
    """It is made anew while the other read is in line still, or has no first token yet."""
    async with beside_a_late_read(lease_s=20.0) as (pair, first, second):
        first_token_of_r2_at_17(pair)
        ids: list[int] = []
        assert isinstance(await told(first, ids), TransferFailed)
        assert ids == RIGHT[:NUM_BEFORE] and pair.num_doubts == 1
        assert (await heard_of(second)).ids() == RIGHT[:5]


@virtually
async def test_who_lost_its_blocks_before_a_read_is_not_believed_for_an_unmoved_counter() -> None:
    """It was counted before the server was asked for the read, with an output on its way."""
    pair = Pair(lease_s=6.0)
    pair.prefill.manners.lease_s = 6.0
    pair.decode.manners.preempts_at = 2
    pair.decode.manners.counts_preempted = PreemptionCount.AT_ONCE
    ids: list[int] = []
    first = asyncio.create_task(told(pair.submit(alone=True), ids))
    await asyncio.sleep(2.0)
    pair.server.numbers = await pair.server.look()
    assert pair.server.numbers.num_preemptions == 1 and ids == RIGHT[:2]
    pair.decode.manners.preempts_at, pair.decode.manners.door_s = None, 7.0
    assert (await pair.answer(request_id="r2")).ids() == RIGHT[:5]
    pair.decode.resumed.set()
    assert isinstance(await first, TransferFailed)
    assert ids == RIGHT[:2] and pair.decode.num_preempted == 1


@virtually
async def test_an_answer_that_kept_its_blocks_is_told_to_its_end() -> None:
    """Its pieces wait for looks at the server's page, which leave it time to work."""
    async with beside_a_late_read(preempts_at=None) as (pair, first, second):
        pair.decode.manners.token_s = 0.5
        heard, other = await asyncio.gather(heard_of(first), heard_of(second))
    assert heard.ids() == RIGHT and other.ids() == RIGHT[:5] and pair.num_doubts == 1
    assert pair.decode.num_looks > 10
    assert pair.link.num_late_reads == 0


@virtually
async def test_reads_that_follow_each_other_in_line_end_no_answer_that_kept_its_blocks() -> None:
    """Its pieces wait for looks from the first one on: when the second is asked for it says nothing
    at once, and is not taken for one that has lost its blocks."""
    pair = Pair(lease_s=6.0)
    pair.decode.manners.token_s = 0.5
    first = pair.submit(alone=True, max_tokens=60)
    await asyncio.sleep(1.1)
    pair.decode.manners.door_s = 1e6
    pair.submit(request_id="r2")
    await asyncio.sleep(5.0)
    pair.decode.manners.door_s = 8.5
    third = pair.submit(request_id="r3")
    heard, other = await asyncio.gather(heard_of(first), heard_of(third))
    assert heard.ids() == answer_to(PROMPT, 60) and other.ids() == RIGHT[:5]
    assert pair.num_doubts == 1 and pair.link.num_late_reads == 0


@virtually
async def test_looks_are_for_all_answers_and_leave_the_server_a_while_between_them() -> None:
    pair = Pair(lease_s=6.0)
    pair.decode.manners.token_s = 0.1
    answers = [
        asyncio.create_task(pair.answer(alone=True, request_id=f"a{number}", max_tokens=60))
        for number in range(9)
    ]
    get, looked = pair.decode.get, list[float]()

    async def noted(path: str, *, timeout_s: float) -> VllmAnswer:
        looked.append(asyncio.get_running_loop().time())
        return await get(path, timeout_s=timeout_s)

    pair.decode.get = noted  # type: ignore[method-assign]
    await asyncio.sleep(1.0)
    pair.decode.manners.door_s = 1e6
    pair.submit(request_id="r2")
    assert [(await answer).ids() for answer in answers] == [answer_to(PROMPT, 60)] * 9
    assert 10 < len(looked) < 60
    assert min(after - before for before, after in pairwise(looked)) >= 0.25 - 1e-6


@pytest.mark.parametrize("is_open", [False, True])
@virtually
async def test_a_preempted_answer_goes_on_where_nothing_was_read_late(is_open: bool) -> None:
    """`is_open`: the other read is not judged yet, and its prefill server is asked."""
    async with beside_a_late_read(lease_s=20.0, read_lease_s=20.0) as (pair, first, second):
        if is_open:
            first_token_of_r2_at_17(pair)
        heard, other = await asyncio.gather(heard_of(first), heard_of(second))
    assert heard.ids() == RIGHT and other.ids() == RIGHT[:5] and pair.num_doubts == 0
    assert pair.decode.num_preempted == 1 and (pair.prefill.num_looks > 1) is is_open


@pytest.mark.parametrize(
    "given", [{"tenant": "other"}, {"prompt": [1, *PROMPT]}, {"prompt": PROMPT[:3], "n": 2}]
)
@virtually
async def test_who_could_not_find_what_was_read_waits_for_no_look(given: dict[str, object]) -> None:
    """Another tenant's, and another beginning. The last could: of what it has less, its answer may
    be the rest."""
    could_find = "n" in given
    pair = Pair(lease_s=6.0)
    stream = pair.submit(alone=True, max_tokens=NUM_TOKENS, **given)
    pair.decode.manners.token_s = 1.0
    await asyncio.sleep(1.6)
    pair.decode.manners.door_s = 8.5
    second = pair.submit(request_id="r2")
    heard, _ = await asyncio.gather(heard_of(stream), heard_of(second))
    prompt = list(given.get("prompt", PROMPT))  # type: ignore[call-overload]
    assert heard.ids() == answer_to(prompt, NUM_TOKENS)
    assert (pair.decode.num_looks > 0) is could_find and pair.num_doubts == 1


@virtually
async def test_while_no_read_could_be_late_no_page_is_looked_at() -> None:
    pair = Pair(lease_s=30.0)
    pair.decode.manners.token_s = 0.5
    stream = pair.submit(alone=True)
    await asyncio.sleep(1.1)
    pair.decode.manners.door_s = 5.0
    other = pair.submit(request_id="r2")
    assert (await heard_of(stream)).ids() == (await heard_of(other)).ids() == RIGHT[:5]
    assert pair.decode.num_looks == 0 and pair.prefill.num_looks == 0


@virtually
async def test_a_server_that_nobody_can_look_at_is_not_believed() -> None:
    async with beside_a_late_read(preempts_at=None) as (pair, first, second):

        async def failing(path: str, *, timeout_s: float) -> VllmAnswer:
            raise WorkerLost("no page")

        pair.decode.get = failing  # type: ignore[method-assign]
        pair.decode.manners.token_s = 1.0
        ids: list[int] = []
        error, heard = await asyncio.gather(told(first, ids), heard_of(second))
    assert isinstance(error, TransferFailed) and ids == RIGHT[: len(ids)] != RIGHT
    assert heard.ids() == RIGHT[:5]
