"""`splitserve serve --launcher ray`: a fleet of real processes in the hands of actors."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from cluster.launcher.ray.session import RaySession
from tests.cli.run_cli import cli
from tests.fleet.one_fleet import ENGINE
from tests.fleet.support import Fleet, running_fleet, wait_for
from tests.ranks.ray.cluster_room import (
    RANKS_PER_NODE,
    another_node,
    groups_that_stand,
    room_held,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ON_RAY = ("--launcher", "ray", "--device", "cpu", *ENGINE)
RESTART_TIMEOUT_S = 120.0


def test_a_fleet_on_a_ray_of_its_own_answers_a_chat_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = folders_of_rays()
    with running_fleet(tmp_path, *ON_RAY, num_workers=2) as fleet:
        assert "Paris" in answer(fleet)
        assert {"raylet", "gcs_server"} <= {process.name() for process in fleet.processes()}
        assert (tmp_path / "decode-0.log").stat().st_size > 0
    assert folders_of_rays() <= before


def test_a_worker_whose_node_is_lost_comes_back_on_another_and_answers(
    tmp_path: Path, raylets: Any, session: RaySession
) -> None:
    on_cluster = (*ON_RAY, "--ray-address", session.address, "--prefill", "0")
    with contextlib.ExitStack() as held:
        others = held.enter_context(room_held(session, 2 * RANKS_PER_NODE))
        lost = held.enter_context(another_node(raylets))
        fleet = held.enter_context(running_fleet(tmp_path, *on_cluster, num_workers=1))
        others.remove(session)
        assert "Paris" in answer(fleet)
        (worker,) = fleet.status()["members"]
        raylets.remove_node(lost, allow_graceful=False)
        wait_for(
            lambda: came_back(fleet, worker["pid"]), timeout_s=RESTART_TIMEOUT_S, what="a worker"
        )
        assert "Paris" in answer(fleet)
        assert not psutil.pid_exists(worker["pid"])
    assert lost.node_id[:8] in (tmp_path / "serve.log").read_text()
    assert groups_that_stand(session) == []
    assert session.ray.util.list_named_actors() == []


def test_a_cluster_that_is_too_small_for_a_fleet_is_told_with_the_table(
    tmp_path: Path, session: RaySession
) -> None:
    words = (*ON_RAY, "--ray-address", session.address, "--decode", str(2 * RANKS_PER_NODE))
    done = cli("serve", *words, "--port", "0", "--grpc-port", "0", "--log-dir", str(tmp_path))
    assert done.returncode == 2
    assert "there is no room for 5 rank(s)" in done.stderr and "splitserve_rank 1" in done.stderr


def folders_of_rays() -> set[Path]:
    return set(Path("/tmp").glob("splitserve-ray-*"))


def answer(fleet: Fleet) -> str:
    reply = httpx.post(
        f"{fleet.url}/v1/chat/completions",
        json={
            "model": "smollm2",
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 24,
            "temperature": 0,
        },
        timeout=120,
    )
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


def came_back(fleet: Fleet, old_pid: int) -> bool:
    """Another process has the worker's name and takes requests."""
    members = fleet.status(check=False)["members"]
    return any(row["state"] == "ready" and row["pid"] != old_pid for row in members)
