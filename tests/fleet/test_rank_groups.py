"""An engine of several processes serves as one of a single process does, and ends as a whole."""

import asyncio
import os
import signal

import grpc
import psutil
import pytest

from cluster.rpc import open_channel
from tests.fleet.support import wait_for
from tests.fleet.test_parity import answer_all, chosen, generate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NUM_PROMPTS = 16
NUM_STREAMED = 100
"""Of an answer that loses a rank with its first token: a second of steps, far more than a signal
needs."""
LIMIT_S = 180.0
"""For a worker to come back; generous, since machines are busy."""


def member(fleet):
    (found,) = fleet.status()["members"]
    return found


async def test_two_ranks_give_the_reference_s_tokens_alone_and_sixteen_at_once(
    fleet_of_two_ranks, reference
):
    """Of three ranks see tests/engine/runner/ranks/test_group.py."""
    prompts, answers = reference.prompts[:NUM_PROMPTS], reference.answers[:NUM_PROMPTS]
    alone = await answer_all(fleet_of_two_ranks, chosen(prompts), at_once=1)
    assert [tokens for tokens, _ in alone] == chosen(answers)
    at_once = await answer_all(fleet_of_two_ranks, prompts, at_once=16)
    assert [tokens for tokens, _ in at_once] == answers


def test_the_status_has_a_row_for_each_rank(fleet_of_two_ranks):
    ranks = member(fleet_of_two_ranks)["ranks"]
    assert [(rank["rank"], rank["kv_heads"]) for rank in ranks] == [(0, (0,)), (1, (1, 2))]
    assert ranks[0]["pid"] == member(fleet_of_two_ranks)["engine_pid"]
    assert psutil.pid_exists(ranks[1]["pid"])
    assert len({rank["generation"] for rank in ranks}) == 1


async def test_the_status_tells_how_long_a_step_is_in_collectives(fleet_of_two_ranks, reference):
    await answer_all(fleet_of_two_ranks, reference.prompts[:6], at_once=1)
    await asyncio.to_thread(
        wait_for,
        lambda: all(r["step_collectives_ms"] > 0 for r in member(fleet_of_two_ranks)["ranks"]),
        timeout_s=LIMIT_S,
        what="a pace of both ranks",
    )
    for rank in member(fleet_of_two_ranks)["ranks"]:
        assert rank["step_collectives_ms"] >= rank["step_wait_ms"] >= 0
    assert min(rank["step_skew_ms"] for rank in member(fleet_of_two_ranks)["ranks"]) == 0


async def test_a_spare_takes_the_place_of_a_worker_whose_rank_is_killed(
    fleet_of_two_ranks, reference
):
    fleet = fleet_of_two_ranks
    wait_for(lambda: fleet.status(check=False)["spares"], timeout_s=LIMIT_S, what="a spare")
    (spare,) = fleet.status()["spares"]
    before = member(fleet)
    await lose_a_rank(fleet, before, signal.SIGKILL, reference)
    assert member(fleet)["worker_id"] == spare != before["worker_id"]
    wait_for(
        lambda: fleet.status()["restarts"] == {("decode", "rank_lost"): 1},
        timeout_s=LIMIT_S,
        what="a restart by that cause",
    )


async def test_a_worker_whose_rank_is_stopped_is_replaced_whether_or_not_a_spare_is_ready(
    fleet_of_two_ranks, reference
):
    """The one that was lost before may still be loading."""
    fleet = fleet_of_two_ranks
    await lose_a_rank(fleet, member(fleet), signal.SIGSTOP, reference)


async def lose_a_rank(fleet, before, how, reference):
    """In the midst of a stream; returns when another process has answered right."""
    prompt, answer = reference.prompts[3], reference.answers[3]

    def lose():
        os.kill(before["ranks"][1]["pid"], how)

    async with open_channel(fleet.grpc_address) as channel:
        try:
            tokens, _ = await generate(channel, prompt, NUM_STREAMED, on_first=lose)
            assert tokens[: len(answer)] == answer, "the next one came in time, and went on"
        except grpc.aio.AioRpcError as lost:
            assert lost.code() is grpc.StatusCode.UNAVAILABLE
    await asyncio.to_thread(
        wait_for, lambda: is_back(fleet, before), timeout_s=LIMIT_S, what="another process"
    )
    ((tokens, _),) = await answer_all(fleet, [prompt], at_once=1)
    assert tokens == answer
    await asyncio.to_thread(
        wait_for,
        lambda: not any(psutil.pid_exists(rank["pid"]) for rank in before["ranks"]),
        timeout_s=LIMIT_S,
        what="an end of all its ranks",
    )
    assert "rank 1 of generation" in fleet.log_path.read_text()


def is_back(fleet, before):
    if not fleet.is_healthy():
        return False
    members = fleet.status(check=False)["members"]
    return [m["state"] for m in members] == ["ready"] and (
        members[0]["incarnation"] != before["incarnation"]
    )
