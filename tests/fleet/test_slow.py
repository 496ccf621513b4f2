"""Where latency comes from and whose the workers' time was, of real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx
import pytest

from tests.cli.run_cli import clean_environ, cli
from tests.fleet.support import Fleet, wait_for
from tests.fleet.test_load import is_quiet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

WORKERS = ("prefill-0", "prefill-1", "decode-0", "decode-1")
PLANTED = "decode-1"
STOPPED_S, RUNS_S, LEAST_RUNS_S = 0.3, 0.05, 0.01
NUM_QUICK = 40
NUM_STRAY = 2
"""Of these, so many may be as late as those of the slow worker: machines are busy."""
WANTED, MOST_ASKED = 10, 20
"""Late ones of the slow worker: as many as a tail has at the least; and requests in all
until there are so many."""
NUMBERS = count()


def told(fleet: Fleet, *words: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    done = cli(*words, "-o", "json", "--grpc", fleet.grpc_address, environ=clean_environ())
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def asked(fleet: Fleet) -> dict[str, Any]:
    """A prompt that nobody has, of some 110 tokens: each is another one."""
    reply = reply_to_new_prompt(fleet)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def reply_to_new_prompt(fleet: Fleet) -> httpx.Response:
    prompt = " ".join(f"{next(NUMBERS)} lantern" for _ in range(5)) + " above the street. "
    return httpx.post(
        f"{fleet.url}/v1/completions",
        json={
            "model": "smollm2", "prompt": prompt * 6, "max_tokens": 6, "temperature": 0,
            "timings": True,
        },
        timeout=600,
    )  # fmt: skip


def asked_of_the_only_one(fleet: Fleet) -> dict[str, Any]:
    """Where a late SIGCONT has cost the one worker its life nobody else can answer: another prompt,
    once it is back."""
    replies: list[httpx.Response] = []

    def answers() -> bool:
        replies.append(reply_to_new_prompt(fleet))
        return replies[-1].status_code == 200

    wait_for(answers, timeout_s=300, what="an answer")
    answer: dict[str, Any] = replies[-1].json()
    return answer


def engine_pid(fleet: Fleet, worker_id: str) -> int | None:
    """None while it has none."""
    members = fleet.status(check=False)["members"]
    return next((m["engine_pid"] or None for m in members if m["worker_id"] == worker_id), None)


@dataclass
class Pulses:
    """In which an engine runs."""

    runs_s: float = RUNS_S
    num_lost: int = 0
    """Engines that a late SIGCONT has cost their lives."""


@contextlib.contextmanager
def in_pulses(fleet: Fleet, worker_id: str) -> Iterator[Pulses]:
    """The worker's engine is stopped most of the time: whatever it computes takes as many times
    longer. One that is lost is followed by the next one."""
    over, pulses = threading.Event(), Pulses()

    def pulse() -> None:
        pid = engine_pid(fleet, worker_id)
        while not over.is_set():
            try:
                stop_once(pid)
            except ProcessLookupError:
                pulses.num_lost += pid is not None
                pid = engine_pid(fleet, worker_id)
            over.wait(pulses.runs_s)

    def stop_once(pid: int | None) -> None:
        if pid is None:
            raise ProcessLookupError
        os.kill(pid, signal.SIGSTOP)
        over.wait(STOPPED_S)
        os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield pulses
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def without(fleet: Fleet, *worker_ids: str) -> Iterator[None]:
    """They get nothing: a router that may choose goes round a slow worker."""
    try:
        for worker_id in worker_ids:
            told(fleet, "cordon", worker_id, "--yes")
        yield
    finally:
        for worker_id in worker_ids:
            told(fleet, "uncordon", worker_id)


def ttft_ms(answer: dict[str, Any]) -> float:
    return float(answer["splitserve"]["ttft_ms"])


def late_answers(fleet: Fleet, pulses: Pulses, over_ms: float) -> Iterator[dict[str, Any]]:
    """Of the slow worker, until enough had their first token later than `over_ms`: while it does
    not make them late, on a machine where others are as late, it is made slower."""
    num_late = 0
    for _ in range(MOST_ASKED):
        answer = asked_of_the_only_one(fleet)
        yield answer
        if ttft_ms(answer) > over_ms:
            num_late += 1
        else:
            pulses.runs_s = max(LEAST_RUNS_S, 0.7 * pulses.runs_s)
        if num_late == WANTED:
            return
    raise AssertionError(f"{num_late} of {MOST_ASKED} answers took longer than {over_ms:.0f} ms")


@pytest.mark.minutes
def test_a_planted_slow_worker_is_named(double_fleet: Fleet) -> None:
    others, began_s = [name for name in WORKERS if name != PLANTED], time.monotonic()
    for _ in others:  # commands before the first request take longer than the last one
        told(double_fleet, "cost")
    with without(double_fleet, PLANTED), ThreadPoolExecutor(2) as pool:
        quick = list(pool.map(asked, [double_fleet] * NUM_QUICK))
    over_ms = sorted(map(ttft_ms, quick))[-1 - NUM_STRAY]
    with without(double_fleet, *others), in_pulses(double_fleet, PLANTED) as pulses:
        slow = list(late_answers(double_fleet, pulses, over_ms))
    assert {a["splitserve"]["decode_worker"] for a in slow} == {PLANTED}
    assert PLANTED not in {a["splitserve"]["decode_worker"] for a in quick}
    since = f"{time.monotonic() - began_s:.0f}s"  # of these alone: other tests had slow ones
    found = told(double_fleet, "slow", "--by", "worker,length", "--since", since)
    first = found["slices"][0]
    assert first["value"] == PLANTED, found
    assert first["stands_out"] and first["explains"] > 0.4, first
    if not pulses.num_lost:  # else the time until the next one counts, too
        assert first["mostly"] in ("compute", "wait", "slot"), first
    assert found["conclusion"].startswith(f"{PLANTED} explains"), found["conclusion"]


def test_the_tenants_tokens_are_those_that_were_computed_and_all_time_is_somebodys(
    double_fleet: Fleet,
) -> None:
    before = told(double_fleet, "cost")
    answers = [asked(double_fleet) for _ in range(4)]
    wait_for(lambda: is_quiet(double_fleet), timeout_s=60, what="quiet")
    usages = [answer["usage"] for answer in answers]
    made = sum(usage["completion_tokens"] - 1 for usage in usages)  # the first with the prompt
    computed = sum(
        usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in usages
    )
    after = told(double_fleet, "cost", "--price", "prefill=2,decode=4")
    wait_for(lambda: busy_grew(double_fleet, before), timeout_s=60, what="a beat with busy seconds")
    assert grown("decode_tokens", before, after) == made
    assert grown("prefill_tokens", before, after) == computed
    of_tenants = sum(each["busy_s"] for each in after["tenants"])
    worker_s = sum(pool["worker_s"] for pool in after["pools"])
    assert of_tenants + after["idle_s"] == pytest.approx(worker_s)
    paid = sum(pool["cost"] for pool in after["pools"])
    idle = sum(pool["cost"] * pool["idle_share"] for pool in after["pools"])
    assert sum(each["cost"] for each in after["tenants"]) + idle == pytest.approx(paid)


def grown(name: str, before: dict[str, Any], after: dict[str, Any]) -> float:
    """Of the tenant without a key."""
    first, second = (
        sum(each[name] for each in told_["tenants"] if each["tenant"] == "(no key)")
        for told_ in (before, after)
    )
    return float(second - first)


def busy_grew(fleet: Fleet, before: dict[str, Any]) -> bool:
    """Of both kinds, as the workers say: they tell with a beat."""
    now = told(fleet, "cost")
    return all(
        sum(pool[name] for pool in now["pools"]) > sum(pool[name] for pool in before["pools"])
        for name in ("prefill_s", "decode_s")
    )
