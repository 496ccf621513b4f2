"""What a fleet says of itself: the router's members, and each member's own word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from cli.rank_status import RankStatus, rank_statuses
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.errors import SplitserveError
from cluster.generation import EngineLoad
from cluster.wire import load_from_wire, pairing_from_wire
from protos import membership_pb2, router_admin_pb2, worker_pb2

ROUTER_TIMEOUT_S = 5.0
WORKER_TIMEOUT_S = 10.0


class RouterUnreachable(Exception):
    """The router's gRPC server does not answer."""


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, as the router and the worker itself see it."""

    worker_id: str
    incarnation: str
    role: str
    state: str
    """Its own word; the router's where it does not answer."""
    router_state: str
    address: str
    model: str
    version: str
    pid: int
    engine_pid: int
    ranks: list[RankStatus]
    """The processes that hold its model, in order."""
    beat_age_s: float
    uptime_s: float
    num_in_flight: int
    indexed_blocks: int
    kv_transport: str
    load: EngineLoad
    violations: list[str]
    """Broken invariants; with `check` only."""
    problem: str
    """Why the worker did not answer; empty when it did."""
    settles_later: str = ""
    """Why it is not to be ready yet, in a rolling update; empty: it may be, or is."""
    is_ours: bool = True
    """False: another engine's server, which has no own word; what is here is the router's."""

    @property
    def is_sound(self) -> bool:
        """It answered, or would not be asked, and found nothing broken."""
        return not self.violations and not self.problem


class RestartCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often processes of a pool were started again for one cause."""

    pool: str
    cause: str
    count: int


class RouterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One of several routers, by its own word. Digests are equal where beliefs are."""

    name: str
    num_in_flight: int
    index_digest: str
    load_digest: str
    doubted: list[str]
    """Workers of whose caches it believes something else than the router that was asked."""


class PairingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Workers that can pair with each other, of those that take work."""

    digest: str
    model_digest: str
    num_prefill: int
    num_decode: int
    is_served: bool
    """New requests go to its model."""
    lacks: str
    """Role of which its workers have no partner; empty: none."""


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The router and its members."""

    router: str
    version: str
    uptime_s: float
    num_queued: int
    num_in_flight: int
    """Those that run: they have a place, and none of them is among the queued."""
    members: list[MemberStatus]
    spares: list[MemberStatus]
    """Loaded, and unknown to the router but for what its supervisor tells."""
    restarts: list[RestartCount]
    given_up: str = ""
    """Steps of --degrade that are in force."""
    routers: list[RouterStatus] = []
    """That share a store, the one that was asked first."""
    pairings: list[PairingStatus] = []
    """More than one while a rolling update is under way; those that are served first."""

    @property
    def workers(self) -> list[MemberStatus]:
        """Members, then spares."""
        return self.members + self.spares


async def ask_fleet(dialer: Dialer, address: str, *, check: bool) -> FleetStatus:
    """Asks the router, and by way of it all workers at once. Raises RouterUnreachable."""
    async with _linked(dialer, address) as router:
        try:
            answer = await router.members(timeout_s=ROUTER_TIMEOUT_S)
        except SplitserveError as error:
            raise RouterUnreachable(f"{address}: {error.message}") from error
        members, spares = await asyncio.gather(
            _ask_all(router, answer.members, check), _ask_all(router, _spares_of(answer), check)
        )
    return FleetStatus(
        router=address,
        version=answer.version,
        uptime_s=answer.uptime_s,
        num_queued=answer.num_queued,
        num_in_flight=answer.num_in_flight,
        members=members,
        spares=spares,
        restarts=[
            RestartCount(pool=each.pool, cause=each.cause, count=each.count)
            for each in answer.restarts
        ],
        given_up=answer.given_up,
        routers=[
            RouterStatus(
                name=each.name,
                num_in_flight=each.num_in_flight,
                index_digest=f"{each.index_digest:012x}",
                load_digest=f"{each.load_digest:x}",
                doubted=list(each.doubted),
            )
            for each in answer.routers
        ],
        pairings=[_pairing_of(each) for each in answer.pairings],
    )


def _pairing_of(told: membership_pb2.PairingState) -> PairingStatus:
    return PairingStatus(
        digest=told.digest,
        model_digest=told.model_digest,
        num_prefill=told.num_prefill,
        num_decode=told.num_decode,
        is_served=told.is_served,
        lacks=told.lacks,
    )


def _spares_of(answer: membership_pb2.MembersResponse) -> list[membership_pb2.MemberState]:
    """As far as their supervisor knows them; one that has just joined is a member."""
    joined = {state.member.address for state in answer.members}
    return [
        membership_pb2.MemberState(
            member=membership_pb2.Member(
                worker_id=spare.worker_id, role=spare.role, address=spare.address, pid=spare.pid
            ),
            state="spare",
        )
        for spare in answer.spares
        if spare.address not in joined
    ]


async def _ask_all(
    router: OperatorLink, seen: Sequence[membership_pb2.MemberState], check: bool
) -> list[MemberStatus]:
    asked = await asyncio.gather(*(_ask_member(router, state, check) for state in seen))
    return sorted(asked, key=lambda member: (member.role, member.worker_id))


async def _ask_member(
    router: OperatorLink, seen: membership_pb2.MemberState, check: bool
) -> MemberStatus:
    """The worker's own numbers; the router's where the worker does not answer, or is another
    engine's server, which no router would ask."""
    if not _is_ours(seen):
        return _status(seen, None, problem="")
    request = router_admin_pb2.WorkerStatusRequest(
        worker_id=seen.member.worker_id, check_invariants=check
    )
    try:
        own = await router.worker_status(request, timeout_s=WORKER_TIMEOUT_S)
        return _status(seen, own, problem="")
    except SplitserveError as error:
        return _status(seen, None, problem=error.message)


def _status(
    seen: membership_pb2.MemberState, own: worker_pb2.StatusResponse | None, *, problem: str
) -> MemberStatus:
    member = seen.member
    load = load_from_wire(own.load if own else seen.load)
    return MemberStatus(
        worker_id=member.worker_id,
        incarnation=member.incarnation or (own.incarnation if own else ""),
        role=member.role,
        state=own.state if own else seen.state,
        router_state=seen.state,
        address=member.address,
        model=member.model,
        version=member.version,
        pid=member.pid,
        engine_pid=own.engine_pid if own else 0,
        ranks=rank_statuses(member.ranks, own.rank_paces if own else (), load.home_blocks_left),
        beat_age_s=seen.beat_age_s,
        uptime_s=own.uptime_s if own else 0.0,
        num_in_flight=seen.num_in_flight,
        indexed_blocks=seen.indexed_blocks,
        kv_transport=own.kv_transport if own else member.kv_transport,
        load=load,
        violations=list(own.violations) if own else [],
        problem=problem,
        settles_later=seen.settles_later,
        is_ours=_is_ours(seen),
    )


def _is_ours(seen: membership_pb2.MemberState) -> bool:
    return pairing_from_wire(seen.member.pairing).is_ours


@asynccontextmanager
async def _linked(dialer: Dialer, address: str) -> AsyncIterator[OperatorLink]:
    link = dialer.operator(address)
    try:
        yield link
    finally:
        await link.close()
