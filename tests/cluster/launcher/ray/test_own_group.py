"""What a child of a Ray task is told of the placement group that the task runs in."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.launcher.ray.own_group import PLACEMENT_GROUP, environ_of_own_group


def ray_in(group: Any) -> Any:
    """As much of the library as a task has."""
    return SimpleNamespace(
        is_initialized=lambda: True,
        util=SimpleNamespace(get_current_placement_group=lambda: group),
        get_runtime_context=lambda: SimpleNamespace(gcs_address="10.0.0.1:6379"),
    )


GROUP = SimpleNamespace(id=SimpleNamespace(hex=lambda: "ab12"))


def test_a_child_of_a_task_is_told_of_its_group_and_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray_in(GROUP))
    assert environ_of_own_group({}) == {
        PLACEMENT_GROUP: "id:ab12",
        "RAY_ADDRESS": "10.0.0.1:6379",
    }


def test_who_was_told_of_a_group_keeps_it_and_who_runs_in_none_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray_in(GROUP))
    assert environ_of_own_group({PLACEMENT_GROUP: "given"}) == {}
    monkeypatch.setitem(sys.modules, "ray", ray_in(None))
    assert environ_of_own_group({}) == {}
    monkeypatch.delitem(sys.modules, "ray")
    assert environ_of_own_group({}) == {}
