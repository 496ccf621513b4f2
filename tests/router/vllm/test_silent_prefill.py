"""A prefill server that answers no prompt: what a request loses by it, and when it is its fault."""

from __future__ import annotations

import asyncio

from cluster.deadline import MAX_TIMEOUT_S
from router.vllm.prompt_silence import PromptSilence
from tests.router.vllm.fake_vllm import answer_to
from tests.router.vllm.linked import PROMPT, Pair, heard_of
from tests.router.vllm.test_link import virtually

RIGHT = answer_to(PROMPT, 5)


@virtually
async def test_a_request_without_a_deadline_loses_half_of_its_time_to_a_first_token() -> None:
    pair = Pair()
    pair.prefill.manners.prefill_s = 1e6
    began_s = asyncio.get_running_loop().time()
    heard = await heard_of(pair.submit(timeout_s=MAX_TIMEOUT_S, first_token_s=300.0))
    took_s = asyncio.get_running_loop().time() - began_s
    assert heard.ids() == RIGHT and 150.0 <= took_s < 155.0
    assert pair.handoffs == [("vllm-p:1", True)]


@virtually
async def test_a_short_request_keeps_half_of_its_time_for_the_decode_server() -> None:
    pair = Pair()
    pair.prefill.manners.prefill_s = 1e6
    began_s = asyncio.get_running_loop().time()
    assert (await heard_of(pair.submit(timeout_s=3.0))).ids() == RIGHT
    assert asyncio.get_running_loop().time() - began_s < 2.4


@virtually
async def test_a_clients_own_hurry_is_no_fault_of_a_prefill_server() -> None:
    pair = Pair()
    pair.prefill.manners.prefill_s = 2.6
    for _ in range(50):
        assert (await heard_of(pair.submit(timeout_s=4.9))).ids() == RIGHT
        assert (await heard_of(pair.submit(timeout_s=60.0))).ids() == RIGHT
    assert pair.handoffs == [("vllm-p:1", False)] * 50


@virtually
async def test_requests_in_a_hurry_find_a_dead_prefill_server_together() -> None:
    pair = Pair()
    pair.prefill.manners.prefill_s = 1e6
    num_asked = 0
    while not pair.handoffs:
        num_asked += 1
        assert (await heard_of(pair.submit(timeout_s=10.0))).ids() == RIGHT
        await asyncio.sleep(100.0)  # in which nobody waits
    assert num_asked == 6 and pair.handoffs == [("vllm-p:1", True)]


def test_silence_counts_while_somebody_waits_and_ends_with_an_answer_to_anybody() -> None:
    silence = PromptSilence()
    silence.begin(10.0)
    silence.begin(12.0)
    assert silence.so_far_s(15.0) == 5.0
    silence.end(15.0)
    silence.end(16.0)
    assert silence.so_far_s(100.0) == 6.0
    silence.begin(100.0)
    silence.forgive(1.0)
    assert silence.so_far_s(103.0) == 8.0
    silence.broken(103.0)
    assert silence.so_far_s(104.0) == 1.0
