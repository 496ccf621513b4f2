"""A request at vLLM servers, which misbehave in all the ways that are known of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest

from cluster.errors import DeadlineExceeded, InvalidRequest, NotReady, SplitserveError, WorkerLost
from cluster.tracing.context import context_to_wire
from tests.kept_spans import CALLER
from tests.router.vllm.fake_vllm import answer_to, refusal
from tests.router.vllm.linked import PROMPT, Pair, heard_of
from tests.virtual_loop import run_virtually

RIGHT = answer_to(PROMPT, 5)


def virtually(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test in an event loop whose time passes at once."""

    @wraps(test)
    def run(*args: Any, **given: Any) -> None:
        async def work() -> None:
            await test(*args, **given)

        run_virtually(work())

    return run


@virtually
async def test_a_server_alone_answers_with_tokens_and_usage() -> None:
    pair = Pair()
    heard = await pair.answer(alone=True, n=2)
    assert heard.ids(0) == heard.ids(1) == RIGHT
    assert heard.ended is not None and heard.ended.usage.cached_tokens == 1
    assert (heard.ended.usage.prompt_tokens, heard.ended.usage.completion_tokens) == (5, 10)
    assert heard.ended.timing.prefill_ms > 0 and not pair.prefill.asked


@virtually
async def test_a_pair_is_asked_as_nixl_wants_it() -> None:
    pair = Pair()
    heard = await pair.answer(min_tokens=3, logprobs=None)
    asked, read = pair.prefill.asked[0], pair.decode.asked[0]
    assert (asked["max_tokens"], asked["min_tokens"], asked["n"], asked["stream"]) == (
        1,
        0,
        1,
        False,
    )
    assert asked["kv_transfer_params"] == {"do_remote_decode": True}
    assert "stream_options" not in asked
    assert read["kv_transfer_params"]["remote_engine_id"] == "p"
    assert read["max_tokens"] == 5 and heard.ids() == RIGHT
    assert heard.ended is not None and heard.ended.timing.prefill_worker == "vllm-p:1"
    assert heard.ended.usage.cached_tokens == 3 and pair.handoffs == [("vllm-p:1", False)]


@virtually
async def test_both_servers_of_a_traced_request_are_told_of_its_trace() -> None:
    pair = Pair()
    await pair.answer(trace=context_to_wire(CALLER))
    told = {"traceparent": CALLER.traceparent, "tracestate": "a=1"}
    assert pair.prefill.told == pair.decode.told == [told]
    await pair.answer(alone=True)
    assert pair.decode.told[-1] == {}


@virtually
async def test_blocks_that_were_read_after_their_lease_reach_no_client() -> None:
    pair = Pair(lease_s=6.0)
    pair.prefill.manners.lease_s, pair.decode.manners.door_s = 6.0, 7.0
    pair.prefill.manners.counts_late = False
    assert (await pair.answer()).ids() == RIGHT
    assert [("kv_transfer_params" in body) for body in pair.decode.asked] == [True, False]
    assert pair.handoffs == [("vllm-p:1", True)]


@virtually
async def test_blocks_that_were_read_late_are_cached_and_found_by_nobody() -> None:
    pair = Pair(lease_s=6.0)
    pair.prefill.manners.lease_s, pair.decode.manners.door_s = 6.0, 7.0
    await pair.answer()
    pair.decode.manners.door_s = 0.0
    assert (await pair.answer()).ids() == (await pair.answer(alone=True)).ids() == RIGHT
    salts = [body["cache_salt"] for body in pair.decode.asked]
    assert salts[0] != salts[1] == salts[2] == salts[3]


@virtually
async def test_a_client_that_leaves_before_a_late_read_is_told_of_takes_no_doubt_along() -> None:
    pair = Pair(lease_s=6.0)
    pair.prefill.manners.lease_s, pair.decode.manners.door_s = 6.0, 7.0
    pair.decode.manners.token_s = 1.0
    stream = pair.submit()
    await asyncio.sleep(8.0)
    stream.close()
    await asyncio.sleep(0)
    pair.decode.manners.door_s = 0.0
    assert (await pair.answer(alone=True)).ids() == RIGHT


@virtually
async def test_a_lease_that_is_shorter_than_the_router_was_told_is_seen_by_the_counter() -> None:
    pair = Pair(lease_s=30.0)
    pair.prefill.manners.lease_s, pair.decode.manners.door_s = 6.0, 12.0
    assert (await pair.answer()).ids() == RIGHT
    assert len(pair.decode.asked) == 2 and pair.prefill.late_reads == 1


@virtually
async def test_a_counter_that_another_process_keeps_acquits_nobody() -> None:
    """It begins anew with each process, as does what it has counted."""
    pair = Pair(lease_s=30.0)
    pair.prefill.manners.lease_s, pair.prefill.manners.counts_late = 6.0, False
    pair.decode.manners.door_s = 12.0
    stream = pair.submit()
    await asyncio.sleep(1.0)
    pair.prefill.manners.started_s += 5.0
    assert (await heard_of(stream)).ids() == RIGHT
    assert len(pair.decode.asked) == 2


@virtually
async def test_an_end_without_a_token_is_believed_no_sooner_than_a_token() -> None:
    """Of blocks that were another's by then an answer may end at once."""
    pair = Pair(lease_s=30.0)
    pair.prefill.manners.lease_s = pair.decode.manners.door_s = 12.0
    pair.decode.manners.ends_at_once = True
    heard = await pair.answer()
    assert len(heard.ids()) == 1 and len(pair.decode.asked) == 2


@virtually
async def test_a_prompt_whose_first_token_stops_it_is_computed_for_its_reader_all_the_same() -> (
    None
):
    pair = Pair()
    heard = await pair.answer(stop_token_ids=RIGHT[:1], ignore_eos=False)
    assert heard.ids() == RIGHT and pair.handoffs == [("vllm-p:1", False)]
    assert pair.decode.asked[0]["stop_token_ids"] == RIGHT[:1]


@virtually
async def test_a_slow_read_within_the_lease_is_believed_when_the_counter_stands() -> None:
    pair = Pair(lease_s=30.0)
    pair.decode.manners.door_s = 12.0
    assert (await pair.answer()).ids() == RIGHT
    assert len(pair.decode.asked) == 1 and pair.handoffs == [("vllm-p:1", False)]


@virtually
async def test_a_slow_read_is_not_believed_when_the_counter_cannot_be_asked() -> None:
    pair = Pair(lease_s=30.0)
    pair.decode.manners.door_s = 12.0
    stream = pair.submit()
    await asyncio.sleep(1.0)
    pair.prefill.manners.is_there = False
    assert (await heard_of(stream)).ids() == RIGHT
    assert len(pair.decode.asked) == 2


@pytest.mark.parametrize("status", [500, 503])
@virtually
async def test_a_prompt_that_was_not_computed_is_the_decode_servers(status: int) -> None:
    pair = Pair()
    pair.prefill.manners.refuses = refusal(status, "no")
    assert (await pair.answer()).ids() == RIGHT
    assert "kv_transfer_params" not in pair.decode.asked[0]
    assert pair.handoffs == ([("vllm-p:1", True)] if status == 500 else [])


@pytest.mark.parametrize("lacking", ["remote_engine_id", "remote_block_ids"])
@virtually
async def test_parameters_that_would_end_vllms_engine_are_not_passed_on(lacking: str) -> None:
    pair = Pair()
    pair.prefill.manners.lacks = lacking
    assert (await pair.answer()).ids() == RIGHT
    assert "kv_transfer_params" not in pair.decode.asked[0]


@virtually
async def test_a_server_that_cannot_read_the_blocks_computes_the_prompt() -> None:
    pair = Pair()
    pair.decode.manners.refuses_blocks = refusal(500, "the remote agent is gone")
    assert (await pair.answer()).ids() == RIGHT
    assert [("kv_transfer_params" in body) for body in pair.decode.asked] == [True, False]
    assert pair.handoffs == [("vllm-p:1", True)]


@virtually
async def test_a_decode_server_that_fails_alone_too_is_at_fault_itself() -> None:
    pair = Pair()
    pair.decode.manners.refuses = refusal(500, "EngineDeadError")
    with pytest.raises(WorkerLost, match="EngineDeadError"):
        await pair.answer()
    assert len(pair.decode.asked) == 2 and pair.handoffs == []


@pytest.mark.parametrize(
    ("status", "error"), [(429, NotReady), (503, NotReady), (400, InvalidRequest)]
)
@virtually
async def test_what_is_no_fault_of_the_blocks_is_not_tried_without_them(
    status: int, error: type[SplitserveError]
) -> None:
    pair = Pair()
    pair.decode.manners.refuses_blocks = refusal(status, "no")
    with pytest.raises(error):
        await pair.answer()
    assert len(pair.decode.asked) == 1


@virtually
async def test_no_parameters_go_out_twice_however_often_a_request_is_tried() -> None:
    pair = Pair()
    pair.decode.manners.refuses_blocks = refusal(503, "full")
    with pytest.raises(NotReady):
        await pair.answer()
    pair.decode.manners.refuses_blocks = None
    assert (await pair.answer(request_id="r1~2")).ids() == RIGHT
    told = [body["kv_transfer_params"]["remote_request_id"] for body in pair.decode.asked]
    assert len(told) == len(set(told)) == 2 and len(pair.prefill.asked) == 2


@virtually
async def test_a_client_that_leaves_between_the_two_servers_leaves_nothing_behind_it() -> None:
    """The prompt is computed, and the decode server has not begun."""
    pair = Pair()
    pair.decode.manners.door_s = 5.0
    stream = pair.submit()
    await asyncio.sleep(1.0)
    assert len(pair.decode.asked) == 1
    stream.close()
    await asyncio.sleep(1.0)
    assert pair.decode.aborted == 1 and pair.num_doubts == 0 and pair.handoffs == []
    assert pair.prefill_server.num_asked == 0 and pair.prefill_server.silence.so_far_s(1e9) == 0.0
    assert (await pair.answer(request_id="r2")).ids() == RIGHT


@virtually
async def test_an_answer_that_breaks_off_is_not_begun_again_here() -> None:
    pair = Pair()
    pair.decode.manners.breaks_after = 2
    stream = pair.submit()
    with pytest.raises(WorkerLost, match="broke off"):
        await heard_of(stream)
    assert len(pair.decode.asked) == 1


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ([b"garbage"], "no chunk"),
        ([], "before the end"),
        ([b"[DONE]"], "before its choices"),
        ([b'{"error":{"message":"EngineDeadError"}}'], "EngineDeadError"),
        ([b'{"choices":[{"index":7,"token_ids":[1]}]}'], "choice 7 of 1"),
    ],
)
@virtually
async def test_what_is_no_answer_ends_the_request_and_nothing_else(
    says: list[bytes], why: str
) -> None:
    pair = Pair()
    pair.decode.manners.says = says
    with pytest.raises(WorkerLost, match=why):
        await pair.answer(alone=True)
    pair.decode.manners.says = None
    assert (await pair.answer(alone=True)).ids() == RIGHT


@virtually
async def test_a_client_that_leaves_while_its_prompt_is_computed_takes_it_along() -> None:
    pair = Pair()
    stream = pair.submit()
    await asyncio.sleep(0.1)
    stream.close()
    await asyncio.sleep(1.0)
    assert pair.prefill.aborted == 1 and not pair.decode.asked


@virtually
async def test_a_prefill_server_that_never_answers_costs_half_of_a_requests_time() -> None:
    pair = Pair()
    pair.prefill.manners.prefill_s = 3600.0  # its engine stands still: looks are answered
    began_s = asyncio.get_running_loop().time()
    assert (await pair.answer()).ids() == RIGHT
    took_s = asyncio.get_running_loop().time() - began_s
    assert 60.0 <= took_s < 70.0 and pair.prefill.aborted == 1
    assert pair.handoffs == [("vllm-p:1", True)]


@virtually
async def test_a_client_that_leaves_ends_its_answer_at_the_server() -> None:
    pair = Pair()
    stream = pair.submit()
    await stream.next()
    stream.close()
    await asyncio.sleep(1.0)
    assert pair.decode.aborted == 1


@virtually
async def test_after_its_last_choice_is_stopped_a_request_ends_well_and_at_once() -> None:
    pair = Pair()
    stream = pair.submit(max_tokens=1000, n=2)
    await stream.next()
    stream.finish(0)
    await asyncio.sleep(1.0)
    assert pair.decode.aborted == 0
    stream.finish(1)
    heard = await heard_of(stream)
    assert heard.ended is not None and len(heard.ids(0)) < len(heard.ids(1)) < 1000
    await asyncio.sleep(0)
    assert pair.decode.aborted == 1


@virtually
async def test_a_server_that_hangs_holds_a_request_until_its_deadline() -> None:
    pair = Pair()
    pair.decode.manners.door_s = 1e6
    with pytest.raises(DeadlineExceeded):
        await pair.answer(alone=True)
    await asyncio.sleep(0)
    assert pair.decode.aborted == 1


@virtually
async def test_a_link_that_closes_ends_its_requests_and_takes_no_more() -> None:
    pair = Pair()
    stream = pair.submit()
    await pair.link.close("has left the fleet")
    with pytest.raises(WorkerLost, match="has left the fleet"):
        await stream.next()
    with pytest.raises(WorkerLost):
        pair.submit()
    pair.link.note_health(is_well=True)
    assert not pair.link.is_open


@virtually
async def test_an_id_in_use_is_refused() -> None:
    pair = Pair()
    stream = pair.submit()
    with pytest.raises(InvalidRequest, match="is in use"):
        pair.submit()
    stream.close()
