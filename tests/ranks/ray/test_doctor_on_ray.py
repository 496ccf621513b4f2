"""`splitserve doctor` and a Ray cluster that is there, or is not."""

from __future__ import annotations

import pytest

from cli.doctor.probe import probe
from cluster.launcher.ray.session import RaySession
from tests.ranks.ray.cluster_room import RANKS_PER_NODE, groups_that_stand


def test_the_doctor_has_two_actors_of_the_cluster_answer_and_leaves_nothing_there(
    session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", session.address)
    facts = probe("ray")
    assert facts["version"] == session.ray.__version__ and facts["address"] == session.address
    assert facts["whose"] == "the cluster" and facts["num_nodes"] == 2
    assert f"splitserve_rank {2 * RANKS_PER_NODE}" in facts["free"]
    assert groups_that_stand(session) == []


def test_the_doctor_says_what_a_cluster_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert "no Ray cluster answers at 127.0.0.1:1" in probe("ray")["reason"]
