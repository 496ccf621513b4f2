"""A cluster that is too small says so at once, with a table; one that is busy says so later."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.launcher.ray.bundles import OWN, WORKER_LABEL
from cluster.launcher.ray.placing import PLACE_TIMEOUT_S, check_free, group_of, place_group
from cluster.launcher.ray.session import RaySession, check_somebody_listens
from tests.ranks.ray.cluster_room import (
    ONE,
    RANKS_PER_NODE,
    another_node,
    groups_that_stand,
    room_held,
)


def test_a_cluster_that_is_too_small_answers_with_a_table_of_what_was_asked_and_is_free(
    session: RaySession,
) -> None:
    began_s = time.monotonic()
    with pytest.raises(ConfigError) as refused:
        place_group(session, "large", [ONE] * (2 * RANKS_PER_NODE + 1), first_node=session.node_id)
    assert time.monotonic() - began_s < PLACE_TIMEOUT_S
    text = str(refused.value)
    assert "does not have that much" in text and refused.value.param == "tensor_parallel_size"
    assert re.search(r"\n  0 +splitserve_rank 1 +on this node\n  1 +splitserve_rank 1 +any", text)
    assert len(re.findall(r"\([0-9a-f]{8}\).* splitserve_rank 2", text)) == 2
    assert groups_that_stand(session) == []


def test_room_that_others_hold_is_waited_for_and_then_refused(session: RaySession) -> None:
    with (
        room_held(session, 2 * RANKS_PER_NODE),
        pytest.raises(ConfigError, match="others hold it") as refused,
    ):
        place_group(session, "late", [ONE] * 2, timeout_s=0.3)
    assert str(refused.value).count("splitserve_rank 0") == 2


def test_room_is_looked_for_without_taking_it(session: RaySession) -> None:
    with room_held(session, RANKS_PER_NODE):
        check_free(session, [ONE] * RANKS_PER_NODE)
        with pytest.raises(ConfigError, match="others hold it"):
            check_free(session, [ONE] * (RANKS_PER_NODE + 1))
        check_free(session, [ONE] * RANKS_PER_NODE)


def test_room_that_is_given_back_meanwhile_is_taken(session: RaySession) -> None:
    with room_held(session, RANKS_PER_NODE, node_id=session.node_id):
        pass
    mine = place_group(session, "mine", [ONE] * RANKS_PER_NODE, first_node=session.node_id)
    assert set(mine.nodes) == {session.node_id}
    mine.remove(session)


def test_one_node_is_given_up_for_several_when_others_keep_a_part_of_it(
    session: RaySession,
) -> None:
    with room_held(session, 1, node_id=session.node_id):
        mine = place_group(session, "mine", [ONE] * 2, first_node=session.node_id, timeout_s=1.5)
        assert mine.nodes[0] == session.node_id != mine.nodes[1]
        mine.remove(session)


def test_what_a_worker_has_brought_along_is_its_own_and_the_first_that_it_takes(
    raylets: Any, session: RaySession
) -> None:
    with another_node(raylets, labels={WORKER_LABEL: OWN}) as pod:
        others = place_group(session, "others", [ONE] * (2 * RANKS_PER_NODE))
        assert pod.node_id not in others.nodes
        others.remove(session)
        with pytest.raises(ConfigError, match="does not have that much"):
            place_group(session, "many", [ONE] * (2 * RANKS_PER_NODE + 1))
        own = place_group(session, "own", [ONE] * (RANKS_PER_NODE + 1), first_node=pod.node_id)
        assert own.nodes[:RANKS_PER_NODE] == (pod.node_id,) * RANKS_PER_NODE
        assert own.nodes[-1] != pod.node_id
        own.remove(session)


def test_a_group_that_is_gone_is_told(session: RaySession) -> None:
    with pytest.raises(ConfigError, match="the placement group nobody"):
        group_of(session, "nobody")
    assert group_of(session, None) is None


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://here:10001", "nonsense"])
def test_an_address_where_no_cluster_is_is_told_at_once(address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_somebody_listens(address)
    assert refused.value.param == "ray_address"
