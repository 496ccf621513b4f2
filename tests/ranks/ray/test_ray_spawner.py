"""Ranks on two raylets that were there before: placed, started, lost, and nothing left."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from cluster.launcher.ray.own_group import PLACEMENT_GROUP
from cluster.launcher.ray.session import RaySession
from tests.ranks.ray.cluster_room import (
    DEADLINE_S,
    ONE,
    RANKS_PER_NODE,
    another_node,
    assert_gone,
    group_named,
    groups_that_stand,
    room_held,
)
from tests.ranks.ray.conftest import MakeSpawner
from tests.ranks.ray.inside_a_group import place_two, place_two_in_a_child
from tests.ranks.ray.launches import Heard, end_of, launch
from tests.ranks.ray.two_raylets import GPUS


def child_of(pid: int) -> psutil.Process:
    """The actor that has started this process."""
    parent = psutil.Process(pid).parent()
    assert parent is not None
    return parent


def test_ranks_that_fit_on_the_conductors_node_are_all_there(
    spawner: MakeSpawner, session: RaySession, capfd: pytest.CaptureFixture[str]
) -> None:
    ranks = spawner()
    placement = ranks.place(RANKS_PER_NODE)
    assert placement.nodes == (socket.gethostname(),) * RANKS_PER_NODE
    assert placement.is_one_host and placement.address == "127.0.0.1"
    (row,) = groups_that_stand(session)
    assert set(row["bundles_to_node_id"].values()) == {session.node_id}
    assert row["strategy"] == "STRICT_PACK"


def test_ranks_that_do_not_fit_there_come_node_by_node_after_the_conductor(
    spawner: MakeSpawner, session: RaySession
) -> None:
    ranks = spawner()
    placement = ranks.place(2 * RANKS_PER_NODE)
    assert placement.is_one_host  # two raylets, one machine: they have its memory in common
    (row,) = groups_that_stand(session)
    assert row["strategy"] == "PACK"
    nodes = [host.facts.node_id for _, host in sorted(ranks.hosts.items())]
    assert nodes[:RANKS_PER_NODE] == [session.node_id] * RANKS_PER_NODE
    assert len(set(nodes[RANKS_PER_NODE:])) == 1 and nodes[-1] != session.node_id


def test_a_rank_with_a_gpu_sees_that_gpu_alone(
    spawner: MakeSpawner, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "none of these")
    ranks = spawner(uses_gpus=True)
    ranks.place(2)
    rank, heard = ranks.start(launch(1)), Heard(capfd)
    devices = {heard.said(rank, r"devices '(\d)'"), os.environ["CUDA_VISIBLE_DEVICES"]}
    assert devices == set(GPUS)


def test_what_torch_reads_at_its_start_goes_along_unless_somebody_has_said_otherwise(
    spawner: MakeSpawner, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THP_OF_A_TEST", "the user's")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    ranks = spawner(environ={"OMP_WAIT_POLICY": "PASSIVE", "THP_OF_A_TEST": "ours"})
    ranks.place(2)
    rank, heard = ranks.start(launch(1)), Heard(capfd)
    assert heard.said(rank, "threads wait: (.*)") == "PASSIVE, the user's"


def test_a_rank_does_not_outlive_its_actor(spawner: MakeSpawner) -> None:
    ranks = spawner()
    ranks.place(2)
    rank = ranks.start(launch(1))
    process = psutil.Process(rank.pid)
    child_of(rank.pid).kill()
    assert "Ray has lost its actor" in end_of(rank).ending
    assert_gone(process)


@pytest.mark.parametrize("who", ["rank", "actor"])
def test_what_was_stopped_is_ended_by_a_kill(spawner: MakeSpawner, who: str) -> None:
    ranks = spawner()
    ranks.place(2)
    rank = ranks.start(launch(1))
    process = psutil.Process(rank.pid)
    stopped = process if who == "rank" else child_of(rank.pid)
    stopped.suspend()
    assert rank.poll() is None
    rank.kill()
    rank.kill()
    assert end_of(rank).ending == "signal SIGKILL"
    assert_gone(process, stopped)


def test_a_node_that_is_lost_takes_its_ranks_along_and_is_named(
    spawner: MakeSpawner, raylets: Any, session: RaySession
) -> None:
    _, second = session.nodes()
    with (
        room_held(session, RANKS_PER_NODE, node_id=second.node_id),
        another_node(raylets) as lost,
    ):
        ranks = spawner()
        ranks.place(RANKS_PER_NODE + 1)
        rank = ranks.start(launch(RANKS_PER_NODE))
        process, actor = psutil.Process(rank.pid), child_of(rank.pid)
        actor.suspend()  # by itself it might notice, and might not
        raylets.remove_node(lost, allow_graceful=False)
        assert lost.node_id[:8] in end_of(rank).ending
        assert_gone(process, actor)


def test_a_process_that_has_room_for_its_ranks_takes_that_and_gives_nothing_back(
    spawner: MakeSpawner, session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACEMENT_GROUP, "given")
    with group_named(session, "given"):
        ranks = spawner()
        ranks.place(2)
        assert set(ranks.hosts) == {1}  # the conductor's bundle is taken already
        ranks.close()
        assert [row["name"] for row in groups_that_stand(session)] == ["given"]


@pytest.mark.parametrize("place", [place_two, place_two_in_a_child])
def test_a_task_of_ray_s_that_has_a_placement_group_puts_its_ranks_there(
    session: RaySession, place: Callable[[], tuple[tuple[str, ...], list[int]]]
) -> None:
    ray = session.ray
    with group_named(session, "of-a-task") as group:
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group, 0)
        task = ray.remote(place).options(num_cpus=0, resources=ONE, scheduling_strategy=strategy)
        nodes, ranks = ray.get(task.remote(), timeout=DEADLINE_S)
        assert nodes == (socket.gethostname(),) * 2
        assert ranks == [1]  # the task itself is in the first bundle
        assert [row["name"] for row in groups_that_stand(session)] == ["of-a-task"]


def test_after_the_end_of_a_group_nothing_of_it_is_left(
    spawner: MakeSpawner, session: RaySession
) -> None:
    ranks = spawner()
    ranks.place(2)
    processes = [psutil.Process(ranks.start(launch(1)).pid)]
    processes += [psutil.Process(host.facts.pid) for host in ranks.hosts.values()]
    ranks.close()
    ranks.close()
    assert_gone(*processes)
    assert groups_that_stand(session) == []
    assert session.ray.util.list_named_actors() == []
