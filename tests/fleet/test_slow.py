"""Where latency comes from and whose the workers' time was, of real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
STOPPED_S, RUNS_S = 0.3, 0.05
WANTED = 12
"""Requests at the slow worker: as many as a tail has at the least, and two."""
NUMBERS = count()


def told(fleet: Fleet, *words: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    done = cli(*words, "-o", "json", "--grpc", fleet.grpc_address, environ=clean_environ())
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def asked(fleet: Fleet) -> dict[str, Any]:
    """A prompt that nobody has, of some 300 tokens: each is another one."""
    reply = reply_to_new_prompt(fleet)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def reply_to_new_prompt(fleet: Fleet) -> httpx.Response:
    prompt = " ".join(f"{next(NUMBERS)} lantern" for _ in range(5)) + " above the street. "
    return httpx.post(
        f"{fleet.url}/v1/completions",
        json={
            "model": "smollm2", "prompt": prompt * 16, "max_tokens": 6, "temperature": 0,
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


@contextlib.contextmanager
def in_pulses(fleet: Fleet, worker_id: str) -> Iterator[None]:
    """The worker's engine is stopped most of the time: whatever it computes takes as many times
    longer, on a busy machine as on an idle one. One that a late SIGCONT has cost its life is
    followed by the next one."""
    over = threading.Event()

    def pulse() -> None:
        pid = engine_pid(fleet, worker_id)
        while not over.is_set():
            try:
                stop_once(pid)
            except ProcessLookupError:
                pid = engine_pid(fleet, worker_id)
            over.wait(RUNS_S)

    def stop_once(pid: int | None) -> None:
        if pid is None:
            raise ProcessLookupError
        os.kill(pid, signal.SIGSTOP)
        over.wait(STOPPED_S)
        os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
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


def test_a_planted_slow_worker_is_named(double_fleet: Fleet) -> None:
    others = [name for name in WORKERS if name != PLANTED]
    with ThreadPoolExecutor(2) as pool:
        with without(double_fleet, *others), in_pulses(double_fleet, PLANTED):
            slow = list(pool.map(asked_of_the_only_one, [double_fleet] * WANTED))
        with without(double_fleet, PLANTED):
            quick = list(pool.map(asked, [double_fleet] * (4 * WANTED)))
    assert {a["splitserve"]["decode_worker"] for a in slow} == {PLANTED}
    assert PLANTED not in {a["splitserve"]["decode_worker"] for a in quick}
    found = told(double_fleet, "slow", "--by", "worker,length")
    first = found["slices"][0]
    assert first["value"] == PLANTED, found
    assert first["stands_out"] and first["explains"] > 0.4, first
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
