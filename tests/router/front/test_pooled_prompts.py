"""Requests of many inputs: let in once, charged once, told once in the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from structlog.testing import capture_logs

from cluster.errors import RateLimited, WorkerLost
from cluster.models.pooling import Pooling, PoolingKind
from cluster.process.background import cancel
from router.dispatch.stream import RoutedRequest, StreamEvent
from router.front.generation_request import TokenPrompt
from router.front.pipeline import CompletionPipeline
from router.front.pooled_prompts import MAX_AT_ONCE, PooledPrompts, PooledRequest
from router.tenants.account import Account
from router.tenants.limit_store import MemoryLimits
from router.tenants.limits import LimitKind, Rate
from router.tenants.tenant import Tenant
from router.text_worker.in_process import InProcessText
from tests.router.dispatch_bench import time_limits
from tests.router.front.test_spending import LIMITS, Ledger
from tests.router.front_fakes import FakeSource, Script, pooling_model, pools, until

EMBEDS = Pooling(kind=PoolingKind.LAST, generates=True, dimensions=())
NUM_INPUTS, NUM_TOKENS = 150, 10


def numbers(request: RoutedRequest) -> Sequence[float]:
    return [float(request.token_ids[0])]


def prompts_over(source: FakeSource) -> PooledPrompts:
    model = pooling_model(EMBEDS)
    return PooledPrompts(model, CompletionPipeline(model, source, InProcessText(model)))


def many(account: Account | None = None, num_inputs: int = NUM_INPUTS) -> PooledRequest:
    return PooledRequest(
        request_id="r",
        tenant=Tenant("a", account=account),
        prompts=[TokenPrompt([1 + index] * NUM_TOKENS) for index in range(num_inputs)],
        limits=time_limits(30.0),
    )


def fails_at(index: int, error: Exception) -> Script:
    """The others are answered."""
    answered = pools(numbers)

    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        if request.request_id == f"r-{index}":
            raise error
        async for event in answered(request):
            yield event

    return run


async def test_more_inputs_than_a_burst_are_let_in_at_once_and_the_next_request_waits() -> None:
    now_s = 0.0
    rate = Rate("a", LimitKind.INPUT, 1000.0)
    account = Account([rate], MemoryLimits(lambda: now_s))
    source = FakeSource(pools(numbers))
    prompts = prompts_over(source)
    values = await prompts.pooled(await prompts.prepare(many(account)))
    assert len(values) == len(source.requests) == NUM_INPUTS
    with pytest.raises(RateLimited) as refusal:
        await prompts.pooled(await prompts.prepare(many(account)))
    assert len(source.requests) == NUM_INPUTS, "nothing of the second was computed"
    now_s += refusal.value.retry_after_s + 1e-6
    assert await prompts.pooled(await prompts.prepare(many(account)))


async def test_limits_are_asked_once_and_it_is_charged_what_was_sent() -> None:
    ledger = Ledger()
    account = Account(LIMITS, ledger)
    prompts = prompts_over(FakeSource(pools(numbers)))
    await prompts.pooled(await prompts.prepare(many(account)))
    assert ledger.asked == [(NUM_INPUTS * NUM_TOKENS, 0.0)]
    assert ledger.prompt_and_answer == (NUM_INPUTS * NUM_TOKENS, 0)
    source = FakeSource(fails_at(40, WorkerLost("lost")))
    prompts = prompts_over(source)
    with pytest.raises(WorkerLost):
        await prompts.pooled(await prompts.prepare(many(account)))
    num_sent = len(source.requests)
    assert 40 < num_sent <= NUM_INPUTS
    assert ledger.prompt_and_answer == ((NUM_INPUTS + num_sent) * NUM_TOKENS, 0)


async def test_all_but_the_first_follow_it() -> None:
    source = FakeSource(pools(numbers))
    prompts = prompts_over(source)
    await prompts.pooled(await prompts.prepare(many()))
    first, *others = source.requests
    assert (first.request_id, first.follows, first.num_inputs) == ("r-0", "", NUM_INPUTS)
    assert {(each.follows, each.num_inputs) for each in others} == {("r-0", 1)}


async def test_a_request_of_many_inputs_leaves_two_lines() -> None:
    prompts = prompts_over(FakeSource(pools(numbers)))
    prepared = await prompts.prepare(many())
    with capture_logs() as lines:
        await prompts.pooled(prepared)
    accepted, ended = lines
    assert (accepted["event"], accepted["inputs"]) == ("request accepted", NUM_INPUTS)
    assert accepted["prompt_tokens"] == ended["prompt_tokens"] == NUM_INPUTS * NUM_TOKENS
    assert (ended["outcome"], ended["cached_tokens"]) == ("completed", NUM_INPUTS)


async def test_one_that_fails_or_is_left_leaves_two_lines_as_well() -> None:
    prompts = prompts_over(FakeSource(fails_at(3, WorkerLost("lost"))))
    prepared = await prompts.prepare(many())
    with capture_logs() as lines, pytest.raises(WorkerLost):
        await prompts.pooled(prepared)
    assert [line.get("outcome") for line in lines] == [None, "worker_lost"]

    async def hangs(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        await asyncio.Event().wait()
        yield  # type: ignore[misc]

    source = FakeSource(hangs)
    prompts = prompts_over(source)
    with capture_logs() as lines:
        run = asyncio.create_task(prompts.pooled(await prompts.prepare(many())))
        await until(lambda: len(source.requests) == MAX_AT_ONCE, "they run")
        await cancel([run])
    assert [line.get("outcome") for line in lines] == [None, "cancelled"]


async def test_one_input_is_logged_with_its_times() -> None:
    prompts = prompts_over(FakeSource(pools(numbers)))
    prepared = await prompts.prepare(many(num_inputs=1))
    with capture_logs() as lines:
        await prompts.pooled(prepared)
    assert "inputs" not in lines[0] and "ttft_ms" in lines[1]
