"""How many threads a rank computes on, where it is."""

from __future__ import annotations

import pytest

from cluster.process.own_cores import available_cores
from engine.process.rank_main import _threads_of_host
from ranks.collectives.rendezvous import CollectiveKind, Rendezvous
from ranks.launch import RankLaunch, TcpWay
from tests.cluster.models.configs import SMOLLM2, card_of
from tests.engine.runner.ranks.groups import spec_of


@pytest.mark.parametrize("is_beside_conductor", [True, False])
def test_a_rank_of_a_smaller_host_takes_no_more_threads_than_there_are_cores(
    is_beside_conductor: bool,
) -> None:
    told = available_cores() + 100
    spec = spec_of(card_of(SMOLLM2), 2, num_threads=told)
    launch = RankLaunch(
        spec=spec.pack(),
        rank=1,
        world_size=2,
        generation=1,
        node="here",
        rendezvous=Rendezvous(kind=CollectiveKind.GLOO, generation=1, world_size=2),
        reports_address="",
        way=TcpWay("", ""),
        is_beside_conductor=is_beside_conductor,
    )
    assert _threads_of_host(spec, launch) == (told if is_beside_conductor else available_cores())
