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

ON_RAY = (
    *("--launcher", "ray", "--device", "cpu", "--dtype", "float32", *ENGINE),
    *("--prefill", "0", "--tensor-parallel-size", "2"),
)
CAPITAL = "The capital of France is Paris."
"""Of SmolLM2, greedily, in fp32: whatever number of ranks computes it."""
RESTART_TIMEOUT_S = 120.0


def test_a_replica_of_two_ranks_on_a_ray_of_its_own_answers_and_so_does_a_spare_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = folders_of_rays()
    with running_fleet(tmp_path, *ON_RAY, "--warm-spares", "1", num_workers=1) as fleet:
        assert answer(fleet) == CAPITAL
        assert {"raylet", "gcs_server"} <= {process.name() for process in fleet.processes()}
        what = "a spare worker"
        wait_for(lambda: fleet.status()["spares"], timeout_s=RESTART_TIMEOUT_S, what=what)
        worker = the_worker(fleet)
        rank = worker["ranks"][1]["pid"]
        psutil.Process(rank).kill()
        await_another(fleet, worker)
        assert answer(fleet) == CAPITAL
        assert the_worker(fleet)["worker_id"] != worker["worker_id"]
        assert "rank 1" in (tmp_path / f"{worker['worker_id']}.log").read_text()
    assert folders_of_rays() <= before


@pytest.mark.minutes
def test_a_replica_whose_node_is_lost_comes_back_with_a_rank_on_each_of_two_others(
    tmp_path: Path, raylets: Any, session: RaySession
) -> None:
    first, second = (room.node_id for room in session.nodes())
    with contextlib.ExitStack() as held:
        elsewhere = held.enter_context(room_held(session, 2 * RANKS_PER_NODE))
        lost = held.enter_context(another_node(raylets))
        words = (*ON_RAY, "--ray-address", session.address)
        fleet = held.enter_context(running_fleet(tmp_path, *words, num_workers=1))
        assert answer(fleet) == CAPITAL
        worker = the_worker(fleet)
        elsewhere.remove(session)
        for node_id in (first, second):
            held.enter_context(room_held(session, RANKS_PER_NODE - 1, node_id=node_id))
        raylets.remove_node(lost, allow_graceful=False)
        await_another(fleet, worker)
        assert answer(fleet) == CAPITAL
        (group,) = [row for row in groups_that_stand(session) if "decode-0" in row["name"]]
        assert set(group["bundles_to_node_id"].values()) == {first, second}
        assert not any(psutil.pid_exists(rank["pid"]) for rank in worker["ranks"])
    assert lost.node_id[:8] in (tmp_path / "serve.log").read_text()
    assert groups_that_stand(session) == []
    assert session.ray.util.list_named_actors() == []


def test_a_cluster_that_is_too_small_for_a_fleet_is_told_with_the_table(
    tmp_path: Path, session: RaySession
) -> None:
    words = (*ON_RAY, "--ray-address", session.address, "--decode", str(RANKS_PER_NODE + 1))
    done = cli("serve", *words, "--port", "0", "--grpc-port", "0", "--log-dir", str(tmp_path))
    assert done.returncode == 2
    assert "there is no room for 6 rank(s)" in done.stderr and "splitserve_rank 1" in done.stderr


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


def the_worker(fleet: Fleet) -> dict[str, Any]:
    (worker,) = fleet.status()["members"]
    assert len(worker["ranks"]) == 2
    return dict(worker)


def await_another(fleet: Fleet, old: dict[str, Any]) -> None:
    """Another incarnation has the worker's name and takes requests."""

    def look() -> bool:
        members = fleet.status(check=False)["members"]
        others = [row for row in members if row["ranks"] and row["ranks"] != old["ranks"]]
        return any(row["state"] == "ready" for row in others)

    wait_for(look, timeout_s=RESTART_TIMEOUT_S, what="another incarnation")
