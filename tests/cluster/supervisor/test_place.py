"""Where a fleet is to run, and what its workers have to know of it."""

from __future__ import annotations

import pytest

from cluster.config import ServeOptions
from cluster.errors import ConfigError
from cluster.launcher.local import LocalLauncher
from cluster.launcher.ray.bundles import NodeRoom
from cluster.options import load_options
from cluster.process.own_cores import available_cores
from cluster.supervisor.place import check_nodes, place_of


def serving(**flags: object) -> ServeOptions:
    return load_options(ServeOptions, flags, environ={})


def nodes_at(*addresses: str) -> list[NodeRoom]:
    return [NodeRoom(str(index), at, {}, {}) for index, at in enumerate(addresses)]


def test_a_fleet_is_on_this_machine_unless_ray_is_named() -> None:
    options = serving()
    with place_of(options) as place:
        assert place.options == options and place.make_launcher is LocalLauncher
        assert place.machine.num_cores == available_cores() and place.machine.address is None


def test_nodes_of_one_address_are_no_strangers() -> None:
    check_nodes(serving(), nodes_at("10.0.0.1", "10.0.0.1"))


def test_workers_at_other_addresses_need_a_router_that_listens_there() -> None:
    nodes = nodes_at("10.0.0.1", "10.0.0.2", "10.0.0.2")
    with pytest.raises(ConfigError, match=r"nodes at 10.0.0.2, .* add --host 0.0.0.0") as refused:
        check_nodes(serving(), nodes)
    assert refused.value.param == "host"
    check_nodes(serving(host="0.0.0.0"), nodes)


def test_one_advertised_address_cannot_be_that_of_several_nodes() -> None:
    options = serving(host="0.0.0.0", advertise_host="10.0.0.7")
    with pytest.raises(ConfigError, match="leave it out") as refused:
        check_nodes(options, nodes_at("10.0.0.1", "10.0.0.2"))
    assert refused.value.param == "advertise_host"
