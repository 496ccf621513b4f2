"""Whom the router may dial: the fleet's token goes with every call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import InvalidRequest
from cluster.identity import Role
from cluster.pairing import VLLM
from cluster.world import World
from router.fleet.own_address import own_address
from router.fleet.pooling_link import PoolingLink
from router.fleet.unread import UnreadBytes
from router.fleet.worker_session import WorkerSession
from tests.router.planes import PAIRING, member_of

OURS = member_of(Role.DECODE, "decode-0", address="10.0.0.1:7000")
THEIRS = replace(OURS, worker_id="vllm-d:1", pairing=replace(PAIRING, weights=VLLM))


class NoDialer(GrpcDialer):
    """Dials nobody."""

    def pooling(self, address: str) -> None:  # type: ignore[override]
        raise AssertionError(f"{address} was dialled")


def test_a_worker_of_our_own_is_dialled_where_it_says_and_no_other_is() -> None:
    assert own_address(OURS) == "10.0.0.1:7000"
    with pytest.raises(InvalidRequest, match="vllm-d:1 is a server of another engine"):
        own_address(THEIRS)


def test_whom_no_adapter_claims_is_not_spoken_to_as_one_of_our_own() -> None:
    world = World(dialer=NoDialer())
    with pytest.raises(InvalidRequest):
        WorkerSession(THEIRS, world)
    with pytest.raises(InvalidRequest):
        PoolingLink(THEIRS, world, UnreadBytes())
