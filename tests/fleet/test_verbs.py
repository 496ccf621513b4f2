"""Every verb of an operator, of a fleet that `splitserve serve` has started here."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.cli.verbs import (
    PROMPT,
    REQUEST,
    Ground,
    Place,
    check_bundle,
    check_planner,
    check_verb,
    every_verb,
    ground_of,
    stand_on,
)
from tests.fleet.support import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def ground(fleets, tmp_path_factory) -> Ground:
    """One prefill and one decode worker."""
    fleet, folder = fleets.running("served_fleet"), tmp_path_factory.mktemp("local")
    environ = stand_on(folder, ("--router", fleet.grpc_address))
    asked = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 6}
    headers = {"X-Request-Id": REQUEST}
    reply = httpx.post(f"{fleet.url}/v1/completions", json=asked, headers=headers, timeout=120)
    assert reply.status_code == 200, reply.text
    planned = ("--router", fleet.grpc_address)
    return ground_of(Place.LOCAL, folder, environ, url=fleet.url, planned=planned)


@every_verb
def test_every_verb_works_on_a_fleet_of_this_machine(served_fleet, ground, verb) -> None:
    check_verb(ground, verb)


def test_a_planner_sees_a_fleet_of_this_machine(served_fleet, ground) -> None:
    check_planner(ground)


def test_a_request_that_is_listed_is_described_whether_it_has_ended_meanwhile_or_not(
    served_fleet, ground
) -> None:
    is_over = threading.Event()
    with ThreadPoolExecutor(1) as one:
        asking = one.submit(keep_asking, f"{served_fleet.url}/v1/completions", is_over)
        try:
            listed, *_ = wait_for(
                lambda: in_flight(ground), timeout_s=120, what="a request in flight"
            )
            stage_of(ground, listed)
        finally:
            is_over.set()
        asking.result()
    assert stage_of(ground, listed) == "over"


def keep_asking(url: str, is_over: threading.Event) -> None:
    """One request after the other."""
    asked = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 200, "ignore_eos": True}
    while not is_over.is_set():
        assert httpx.post(url, json=asked, timeout=300).status_code == 200


def stage_of(ground: Ground, name: str) -> str:
    done = ground.run("describe", "request", name, "-o", "json")
    assert done.returncode == 0, done.stderr
    [told] = json.loads(done.stdout)
    assert told["request_id"] == name
    return told["stage"]


def in_flight(ground: Ground) -> list[str]:
    told = json.loads(ground.run("get", "requests", "-o", "json").stdout)
    return [each["request_id"] for each in told["requests"]]


def test_nothing_of_a_fleet_of_this_machine_is_missing_in_its_bundle(served_fleet, ground) -> None:
    check_bundle(ground)
