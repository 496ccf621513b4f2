"""Every verb of an operator, of a release of the chart; and a pool of it that `splitserve scale`
makes larger and smaller under load."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.join_token import JOIN_TOKEN
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
from tests.deploy.load import load
from tests.deploy.release import NAME, Release, model_cache
from tests.mini_cluster.machine import running_cluster

pytest.importorskip("kubernetes", reason="an extra")
pytestmark = [pytest.mark.minutes, pytest.mark.timeout(1200)]
FLEET_PORT = 50052
DEADLINE_S = 240


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """One prefill and one decode worker."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), model_cache()) as cluster:
        made = Release(cluster)
        made.install()
        yield made


@pytest.fixture(scope="module")
def ground(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """An operator has the kubeconfig, the fleet's token, and a way to a router: as by `kubectl
    port-forward`."""
    folder = tmp_path_factory.mktemp("operator")
    router, token = router_address(release), token_in(release, folder)
    where = ("--router", f"{router}:{FLEET_PORT}", "--kubernetes", f"default/{NAME}")
    config = str(release.cluster.server.kubeconfig(""))
    secrets = {"OPENAI_API_KEY": release.api_key(), JOIN_TOKEN: token.read_text()}
    environ = stand_on(
        folder, (*where, "--join-token-file", str(token)), KUBECONFIG=config, **secrets
    )
    asyncio.run(ask(release))
    url = f"http://{router}:8000"
    return ground_of(Place.KUBERNETES, folder, environ, url=url, planned=where)


def router_address(release: Release) -> str:
    words = ("get", "pods", "-o", "json", "-l", "app.kubernetes.io/component=router")
    [pod] = json.loads(release.cluster.kubectl(*words))["items"]
    return str(pod["status"]["podIP"])


def token_in(release: Release, folder: Path) -> Path:
    secret = release.get("secrets", f"{NAME}-fleet")["data"]["join-token"]
    path = folder / "join-token"
    path.write_bytes(base64.b64decode(secret))
    path.chmod(0o600)
    return path


async def ask(release: Release) -> None:
    async with release.client() as client:
        asked = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 6}
        headers = {"X-Request-Id": REQUEST}
        reply = await client.post("/v1/completions", json=asked, headers=headers)
    assert reply.status_code == 200, reply.text


@every_verb
def test_every_verb_works_on_a_release_of_the_chart(ground: Ground, verb: Verb) -> None:
    check_verb(ground, verb)


def test_a_planner_sees_a_release_of_the_chart(ground: Ground) -> None:
    check_planner(ground)


def test_nothing_of_a_release_is_missing_in_its_bundle(ground: Ground) -> None:
    check_bundle(ground)


async def test_prefill_from_one_to_two_and_back_under_load_on_kubernetes_fails_no_request(
    release: Release, ground: Ground
) -> None:
    async with load(release) as clients:
        for size in (2, 1):
            words = ("scale", f"prefill={size}", "--yes", "--wait", "--deadline", str(DEADLINE_S))
            done = await asyncio.to_thread(ground.run, *words)
            assert done.returncode == 0, done.stdout + done.stderr
            before = clients.num_right
            while clients.num_right < before + 2 and not clients.wrong:
                await asyncio.sleep(0.1)
        assert "cached tokens are handed on" in done.stderr


def test_a_pod_gives_its_place_to_one_of_the_other_role(ground: Ground) -> None:
    check_flip(ground)
