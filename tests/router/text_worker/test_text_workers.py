"""Texts worked on by processes of their own: the same results, limits that hold, none that waits
for another."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable

import msgspec
import psutil
import pytest

from cluster.errors import ContextTooLong, InternalError, InvalidRequest, NotReady, QueueFull
from cluster.models.card import ModelCard
from cluster.process.background import cancel
from router.front.generation_request import ChatPrompt, Rendering, TextPrompt
from router.front.model_loading import load_text_side
from router.front.text_work import Door
from router.text_worker import lane, text_process, waiting
from router.text_worker.desk import TextDesk
from router.text_worker.limits import TextLimits
from router.text_worker.messages import EncodeChat, Setup
from router.text_worker.spare import SpareProcess
from router.text_worker.text_process import TextProcess
from router.text_worker.workers import TextWorkers
from tests.router.front_fakes import until
from tests.router.text_worker.text_bench import (
    CONTEXT_TOKENS,
    HELLO,
    HELLO_TASK,
    NAME,
    PLENTY,
    error_of,
    lane_of,
    pids,
    workers_of,
)

BAD = ChatPrompt((("user", "bad"),))
SLOW_IN_C = "{% set l = range(10000)|list %}{{ ([l]*2000)|sum(start=[])|length }}"
LARGE_UNSEEN = (
    '{% set b = "x"*1000000 %}{% set y %}{% for i in range(900) %}{{ b }}{% endfor %}{% endset %}'
    "{{ y|length }}"
)


async def test_a_worker_says_what_the_same_work_says_here(card: ModelCard) -> None:
    desk = TextDesk(load_text_side(card, NAME))
    body = json.dumps({"prompt": ["hello " * 9000, "hell"], "echo": True, "seed": 5}).encode()
    async with workers_of(card) as workers:
        for prompt in (HELLO, TextPrompt("hello hell")):
            told = await workers.encode(prompt, CONTEXT_TOKENS)
            assert told == desk.encode(prompt, CONTEXT_TOKENS)
        read = await workers.read(Door.COMPLETION, body, CONTEXT_TOKENS)
        assert read == desk.read(Door.COMPLETION, body, CONTEXT_TOKENS)


async def test_a_worker_cuts_prompts_and_leaves_out_fields_as_it_was_told(card: ModelCard) -> None:
    body = json.dumps({"prompt": "hello", "truncate_prompt_tokens": 1, "zeta": 1}).encode()
    async with workers_of(card, ignores_unknown_fields=True) as workers:
        whole = await workers.encode(HELLO, CONTEXT_TOKENS)
        cut = await workers.encode(msgspec.structs.replace(HELLO, keep_last=1), CONTEXT_TOKENS)
        assert cut == whole[-1:] and len(whole) > 1
        read = await workers.read(Door.COMPLETION, body, CONTEXT_TOKENS)
    assert (len(read.prompts[0].token_ids), read.ignored) == (1, ("zeta",))


async def test_a_refusal_keeps_its_class_its_words_and_its_parameter(card: ModelCard) -> None:
    async with workers_of(card) as workers:
        error = await error_of(workers.encode(HELLO, 2))
        assert isinstance(error, ContextTooLong) and error.param == "prompt"
        body = json.dumps({"messages": [{"role": "nobody", "content": ""}]}).encode()
        error = await error_of(workers.read(Door.CHAT, body, CONTEXT_TOKENS))
        assert type(error) is InvalidRequest and error.param == "messages[0].role"


async def test_a_template_that_stays_in_c_is_killed_and_the_next_chat_is_served(
    card_with: Callable[[str], ModelCard],
) -> None:
    """No line of the template runs meanwhile, so that its own budget sees nothing."""
    source = "{% if messages[0].content == 'bad' %}" + SLOW_IN_C + "{% endif %}hello"
    async with workers_of(card_with(source), TextLimits(1 << 30, cpu_s=1)) as workers:
        error = await error_of(workers.encode(BAD, CONTEXT_TOKENS))
        assert type(error) is InvalidRequest and "more time" in error.message
        assert await workers.encode(HELLO, CONTEXT_TOKENS)


async def test_a_template_cannot_take_more_memory_than_it_may(
    card_with: Callable[[str], ModelCard],
) -> None:
    """Text made inside a set block is charged to no budget; the address space ends it."""
    source = "{% if messages[0].content == 'bad' %}" + LARGE_UNSEEN + "{% endif %}hello"
    async with workers_of(card_with(source), TextLimits(256 << 20)) as workers:
        assert isinstance(await error_of(workers.encode(BAD, CONTEXT_TOKENS)), InvalidRequest)
        assert await workers.encode(HELLO, CONTEXT_TOKENS)


async def test_a_killed_worker_is_replaced_and_nobody_who_waits_hears_of_it(
    card: ModelCard,
) -> None:
    async with workers_of(card) as workers:
        await workers.encode(HELLO, CONTEXT_TOKENS)
        before = pids()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: len(pids() - before) >= 2, "two new workers start")
        assert await workers.encode(HELLO, CONTEXT_TOKENS)


async def test_what_was_asked_of_a_worker_that_is_killed_may_be_sent_again(
    card: ModelCard,
) -> None:
    async with workers_of(card) as workers:
        await workers.encode(HELLO, CONTEXT_TOKENS)
        for pid in pids():
            os.kill(pid, signal.SIGSTOP)
        asked = asyncio.ensure_future(workers.encode(HELLO, CONTEXT_TOKENS))
        await asyncio.sleep(0)
        await until(lambda: workers.num_waiting == 0, "the worker is asked")
        for pid in pids():
            os.kill(pid, signal.SIGKILL)
        assert type(await error_of(asked)) is NotReady


async def test_who_is_cancelled_while_it_ends_a_process_leaves_none(card: ModelCard) -> None:
    process = await TextProcess.start(Setup(card, NAME, PLENTY))
    ending = asyncio.ensure_future(process.end())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert not psutil.pid_exists(process.pid)


async def test_too_much_waiting_is_refused_at_once(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING", 2)
    workers = TextWorkers(Setup(card, NAME, PLENTY))  # not started: everything waits
    tasks = [asyncio.ensure_future(workers.encode(HELLO, CONTEXT_TOKENS)) for _ in range(2)]
    await asyncio.sleep(0)
    assert isinstance(await error_of(workers.encode(HELLO, CONTEXT_TOKENS)), QueueFull)
    await workers.close()
    assert [type(await error_of(task)) for task in tasks] == [NotReady, NotReady]


async def test_closing_leaves_no_process(card: ModelCard) -> None:
    async with workers_of(card) as workers:
        await workers.encode(HELLO, CONTEXT_TOKENS)
    assert pids() == set()


async def test_a_value_that_json_has_and_the_worker_cannot_be_sent_is_refused_and_harms_nobody(
    card: ModelCard,
) -> None:
    async with workers_of(card) as workers:
        await workers.encode(HELLO, CONTEXT_TOKENS)
        before = pids()
        for value in (2**70, -(2**64), "\ud800", [{"x": 2**64}]):
            chat = msgspec.structs.replace(HELLO, rendering=Rendering(variables={"x": value}))
            bad = asyncio.ensure_future(workers.encode(chat, CONTEXT_TOKENS))
            good = asyncio.ensure_future(workers.encode(HELLO, CONTEXT_TOKENS))
            assert type(await error_of(bad)) is InvalidRequest
            assert await good
        assert pids() >= before


async def test_a_stopped_worker_is_replaced_within_seconds_while_a_chat_waits_for_it(
    card: ModelCard,
) -> None:
    async with workers_of(card) as workers:
        await workers.encode(HELLO, CONTEXT_TOKENS)
        before = pids()
        for pid in before:
            os.kill(pid, signal.SIGSTOP)
        asked = asyncio.ensure_future(workers.encode(HELLO, CONTEXT_TOKENS))
        behind = asyncio.ensure_future(workers.encode(HELLO, CONTEXT_TOKENS))
        assert type(await error_of(asked)) is NotReady
        assert await behind
        await until(lambda: len(pids() - before) >= 2, "the idle one is replaced as well")


async def test_a_text_worker_that_cannot_be_killed_is_given_up(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await TextProcess.start(Setup(card, NAME, PLENTY))
    os.kill(process.pid, signal.SIGSTOP)
    with monkeypatch.context() as kernel:  # a driver keeps it: SIGKILL does nothing
        kernel.setattr(TextProcess, "kill", lambda process: None)
        kernel.setattr(text_process, "KILL_TIMEOUT_S", 0.2)
        async with asyncio.timeout(20):
            assert await process.end() == -signal.SIGKILL
    process.kill()
    await process.wait_for_end()


async def test_a_text_worker_that_stands_still_while_it_loads_and_cannot_be_killed_is_given_up(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stays(pid: int, has_task: Callable[[], bool], kill: Callable[[], None]) -> None:
        os.kill(pid, signal.SIGSTOP)
        raise InternalError("it stood still and cannot be killed")

    monkeypatch.setattr(text_process, "kill_when_silent", stays)
    starting = TextProcess.start(Setup(card, NAME, PLENTY))
    assert "cannot be killed" in (await error_of(starting)).message
    assert pids() == set()


async def test_a_client_whose_task_is_dropped_for_a_bug_is_not_told_of_a_shutdown(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(pid: int, has_task: Callable[[], bool], kill: Callable[[], None]) -> None:
        while not has_task():
            await asyncio.sleep(0.01)
        monkeypatch.undo()
        raise KeyError("a bug of ours")

    monkeypatch.setattr(lane, "kill_when_silent", fails)
    async with workers_of(card) as workers:
        await until(lambda: workers._texts._absent_since_s is None, "a text worker")
        for pid in pids():
            os.kill(pid, signal.SIGSTOP)
        error = await error_of(workers.encode(HELLO, CONTEXT_TOKENS))
        assert isinstance(error, InternalError) and "shutting down" not in error.message


async def test_a_worker_that_a_limit_ends_is_followed_at_once_however_often(
    card_with: Callable[[str], ModelCard],
) -> None:
    """The lane itself goes on: the back-off of what cannot start would grow with each."""
    source = "{% if messages[0].content == 'bad' %}" + SLOW_IN_C + "{% endif %}hello"
    setup = Setup(card_with(source), NAME, TextLimits(1 << 30, cpu_s=0))
    alone = lane_of(setup, SpareProcess(setup))
    running = asyncio.ensure_future(alone.run())
    try:
        for _ in range(2):
            task = EncodeChat(BAD.messages, BAD.rendering, CONTEXT_TOKENS)
            assert type(await error_of(alone.call(task))) is InvalidRequest
            assert not running.done()
        assert await alone.call(HELLO_TASK)
    finally:
        await cancel([running])


async def test_a_router_whose_text_worker_stays_away_says_that_it_is_not_ready(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = TextWorkers(Setup(card, NAME, PLENTY))
    assert "text-worker" in str(workers.why_not_ready())
    await workers.start()
    await until(lambda: workers.why_not_ready() is None, "both are there")
    await workers.close()
    assert workers.why_not_ready() is None
    monkeypatch.setattr(lane, "LONGEST_ABSENCE_S", 0.0)
    assert "text-worker" in str(workers.why_not_ready())


async def test_a_caller_who_leaves_is_taken_out_of_the_line_at_once(card: ModelCard) -> None:
    workers = TextWorkers(Setup(card, NAME, PLENTY))  # not started: everything waits
    asked = [asyncio.ensure_future(workers.encode(HELLO, CONTEXT_TOKENS)) for _ in range(3)]
    await asyncio.sleep(0)
    assert workers.num_waiting == 3
    await cancel(asked[:2])
    assert workers.num_waiting == 1
    await workers.close()
    assert type(await error_of(asked[2])) is NotReady
