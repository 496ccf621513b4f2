"""Hosts of ranks have one name where their ranks share memory, and different ones elsewhere."""

from __future__ import annotations

import pytest

from cluster.errors import ConfigError
from cluster.launcher.protocol import NodeFacts
from cluster.launcher.ray.machine import HostFacts
from ranks.ray.host_names import check_users, names_of_hosts


def at(machine: str, host_name: str, uid: int = 1000) -> HostFacts:
    return HostFacts(
        node_id="n",
        machine=machine,
        host_name=host_name,
        gpus=(),
        pid=1,
        uid=uid,
        born=0,
        niceness=0,
        node=NodeFacts(
            address="10.0.0.1", num_cores=2, free_memory_share=1.0, free_memory_share_now=1.0
        ),
    )


def test_two_nodes_of_ray_on_one_machine_are_one_host() -> None:
    assert names_of_hosts({0: at("a", "here"), 1: at("a", "here")}) == ("here", "here")


def test_containers_that_have_one_name_are_two_hosts() -> None:
    facts = {2: at("a", "here"), 0: at("a", "here"), 1: at("b", "here"), 3: at("c", "there")}
    assert names_of_hosts(facts) == ("here", "here-2", "here", "there")


def test_ranks_of_one_machine_that_would_be_two_users_are_refused() -> None:
    check_users({0: at("a", "here"), 1: at("a", "here"), 2: at("b", "there", uid=0)})
    with pytest.raises(ConfigError, match="on here .* users 1000 and 0,") as refused:
        check_users({0: at("a", "here"), 1: at("a", "here", uid=0)})
    assert refused.value.param == "rank_launcher"
