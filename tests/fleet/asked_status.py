"""What a fleet says of itself, asked in this process.

`splitserve status` says the same (test_seeing.py compares them), after half a second of a core for
the start of a process: too much for a condition that is looked at until it holds.
"""

from __future__ import annotations

from typing import Any

import grpc
import msgspec

from cli.rank_status import RankStatus, rank_statuses
from cluster.join_token import operators_token
from cluster.token_channel import TOKEN_KEY
from cluster.wire import load_from_wire
from protos import membership_pb2, membership_pb2_grpc, worker_pb2, worker_pb2_grpc
from tests.patience import PATIENCE

ROUTER_S = 10.0 * PATIENCE
WORKER_S = 10.0
"""A worker may be stopped by a test: its router's word stands for its own then."""
OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


def shown_token() -> list[tuple[str, str]]:
    """As metadata."""
    token = operators_token()
    return [] if token is None else [(TOKEN_KEY, token)]


def asked_status(address: str, *, check: bool) -> dict[str, Any]:
    """The router's word and, of each worker that answers, its own. Raises grpc.RpcError where the
    router does not answer."""
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        stub = membership_pb2_grpc.MembershipStub(channel)
        view = stub.Members(
            membership_pb2.MembersRequest(), timeout=ROUTER_S, metadata=shown_token()
        )
    seen = sorted(view.members, key=lambda state: (state.member.role, state.member.worker_id))
    return {
        "num_queued": view.num_queued,
        "num_in_flight": view.num_in_flight,
        "members": [_member(state, check=check) for state in seen],
        "spares": [spare.worker_id for spare in view.spares],
        "restarts": {(each.pool, each.cause): each.count for each in view.restarts},
    }


def _member(seen: membership_pb2.MemberState, *, check: bool) -> dict[str, Any]:
    member, own = seen.member, _own_word(seen.member.address, check=check)
    return {
        "worker_id": member.worker_id,
        "incarnation": member.incarnation,
        "role": member.role,
        "state": own.state if own else seen.state,
        "address": member.address,
        "pid": member.pid,
        "engine_pid": own.engine_pid if own else 0,
        "ranks": [msgspec.to_builtins(rank) for rank in _ranks(member, own)],
        "load": msgspec.to_builtins(load_from_wire(own.load if own else seen.load)),
        "violations": list(own.violations) if own else [],
    }


def _ranks(
    member: membership_pb2.Member, own: worker_pb2.StatusResponse | None
) -> list[RankStatus]:
    if own is None:
        return rank_statuses(member.ranks, (), ())
    return rank_statuses(member.ranks, own.rank_paces, own.load.home_blocks_left)


def _own_word(address: str, *, check: bool) -> worker_pb2.StatusResponse | None:
    request = worker_pb2.StatusRequest(check_invariants=check)
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        try:
            stub = worker_pb2_grpc.WorkerAdminStub(channel)
            return stub.Status(request, timeout=WORKER_S, metadata=shown_token())
        except grpc.RpcError:
            return None
