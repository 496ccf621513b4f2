"""Every verb of an operator, of a fleet on Ray; and a pool of it that grows and shrinks. Those of a
fleet of local processes: tests/fleet/test_verbs.py."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.cli.verbs import (
    PROMPT,
    REQUEST,
    Ground,
    Place,
    Verb,
    check_bundle,
    check_flip,
    check_planner,
    check_verb,
    every_verb,
    ground_of,
    stand_on,
)
from tests.fleet.one_fleet import ENGINE
from tests.fleet.reference import Reference
from tests.fleet.support import Fleet, running_fleet
from tests.fleet.test_scale import scaled_up_and_down

pytestmark = [pytest.mark.slow, pytest.mark.minutes, pytest.mark.timeout(400)]
ON_RAY = ("--launcher", "ray", "--device", "cpu", "--dtype", "float32", *ENGINE)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One prefill and one decode worker on a Ray of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        with running_fleet(tmp_path_factory.mktemp("ray"), *ON_RAY, num_workers=2) as running:
            yield running


@pytest.fixture(scope="module")
def ground(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Of that fleet."""
    folder = tmp_path_factory.mktemp("operator")
    environ = stand_on(folder, ("--router", fleet.grpc_address))
    asked = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 6}
    headers = {"X-Request-Id": REQUEST}
    reply = httpx.post(f"{fleet.url}/v1/completions", json=asked, headers=headers, timeout=120)
    assert reply.status_code == 200, reply.text
    planned = ("--router", fleet.grpc_address)
    return ground_of(Place.RAY, folder, environ, url=fleet.url, planned=planned)


@every_verb
def test_every_verb_works_on_a_fleet_on_ray(ground: Ground, verb: Verb) -> None:
    check_verb(ground, verb)


def test_a_planner_sees_a_fleet_on_ray(ground: Ground) -> None:
    check_planner(ground)


def test_nothing_of_a_fleet_on_ray_is_missing_in_its_bundle(ground: Ground) -> None:
    check_bundle(ground)


async def test_prefill_from_one_to_two_and_back_under_load_on_ray_fails_no_request(
    fleet: Fleet,
) -> None:
    await scaled_up_and_down(fleet, Reference())


def test_a_worker_on_ray_gives_its_place_to_one_of_the_other_role(ground: Ground) -> None:
    check_flip(ground)
