"""How workers join this router, and the router's view of them for operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import grpc

from cluster import VERSION
from cluster.config import RouterOptions
from cluster.deadline import Clock
from cluster.dial.dialer import Dialer
from cluster.errors import InvalidRequest, SplitserveError
from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.membership.adapter_wire import adapter_to_wire, adapters_from_wire, unread_from_wire
from cluster.membership.client import Pulse
from cluster.membership.hold import hold_from_wire, hold_to_wire
from cluster.membership.member import MAX_NAME_CHARS, member_from_wire, member_to_wire
from cluster.membership.store import MembershipStore
from cluster.rpc import abort
from cluster.wire import load_from_wire, load_to_wire
from protos import membership_pb2, membership_pb2_grpc, worker_pb2
from router.control.adapter_orders import AdapterOrders
from router.control.hand_on_orders import HandOnOrders
from router.control.hold_orders import HoldOrders
from router.control.join_rules import JoinRules
from router.control.settling import Settling
from router.control.supervision import Supervision
from router.dispatch.both_lines import SeenLine
from router.fleet.fleet import Fleet
from router.fleet.pairing_states import PairingState, pairing_states
from router.index.prefix_index import PrefixIndex
from router.telemetry.diary import Happening

SERVICE_NAME = "splitserve.worker.v1.Membership"
HAND_ON_S = 60.0
"""At most, of a caller with more patience: a worker that leaves should go."""
_log = get_logger("membership")


@dataclass(frozen=True, slots=True)
class JoinTerms:
    """Who may join, and what is asked of those who have."""

    rules: JoinRules
    beat_interval_s: float
    lease_s: float
    max_pool_skew: float
    """See PoolSkew."""

    @classmethod
    def of(cls, rules: JoinRules, options: RouterOptions) -> JoinTerms:
        """Those of a router."""
        skew = options.rollout.max_pool_skew
        return cls(rules, options.beat_interval_s, options.worker_lease_s, skew)


class MembershipService(membership_pb2_grpc.MembershipServicer):
    """The gRPC servicer. `clock` is the store's."""

    def __init__(
        self,
        store: MembershipStore,
        fleet: Fleet,
        index: PrefixIndex,
        lines: SeenLine,
        terms: JoinTerms,
        supervision: Supervision,
        *,
        clock: Clock,
        dialer: Dialer,
        adapter_orders: AdapterOrders,
        given_up: Callable[[], str] = lambda: "",
        routers: Callable[[], Iterable[membership_pb2.RouterState]] = list,
        on_unknown: Callable[[], None] = lambda: None,
    ) -> None:
        """`given_up`: what the router gives up now, in words. `routers`: of one fleet, if several
        share a store. `on_unknown` hears of beats of who has not joined."""
        self._store = store
        self._fleet = fleet
        self._index = index
        self._lines = lines
        self._terms = terms
        self._settling = Settling(fleet, terms.max_pool_skew, clock)
        self._supervision = supervision
        self._clock = clock
        self._given_up = given_up
        self._routers = routers
        self._on_unknown = on_unknown
        self._hold_orders = HoldOrders(fleet, index)
        self._hand_on_orders = HandOnOrders(fleet, index, dialer)
        self._adapter_orders = adapter_orders
        self._started_s = clock()

    async def Join(
        self, request: membership_pb2.JoinRequest, context: grpc.aio.ServicerContext
    ) -> membership_pb2.JoinResponse:
        """Adds a worker; a former incarnation of it is removed whole. See `JoinRules`."""
        try:
            member, hold = member_from_wire(request.member), hold_from_wire(request.hold)
            pulse = _pulse_from_wire(request.beat) if request.HasField("beat") else None
            self._terms.rules.check(member, context.peer())
            await self._store.join(member)
            if pulse is not None:
                await self._take_beat(member.key, pulse)
            self._fleet.holds.hear(member.worker_id, hold)
        except SplitserveError as error:
            await abort(context, error)
        return membership_pb2.JoinResponse(
            beat_interval_s=self._terms.beat_interval_s,
            lease_s=self._terms.lease_s,
            hold=hold_to_wire(self._fleet.holds.of(member.worker_id)),
        )

    async def Beat(
        self, request: membership_pb2.BeatRequest, context: grpc.aio.ServicerContext
    ) -> membership_pb2.BeatResponse:
        """Renews a lease. known=false: the worker must join again."""
        try:
            pulse = _pulse_from_wire(request)
        except SplitserveError as error:
            await abort(context, error)
        key = WorkerKey(request.worker_id, request.incarnation)
        known = await self._take_beat(key, pulse)
        holds = self._fleet.holds
        if known:
            holds.hear(request.worker_id, pulse.hold)
        else:
            self._on_unknown()
        return membership_pb2.BeatResponse(
            known=known,
            hold=hold_to_wire(holds.of(request.worker_id)),
            settles_later=self._settling.why_later(key) if request.is_settling else "",
        )

    async def _take_beat(self, key: WorkerKey, pulse: Pulse) -> bool:
        """False: nobody who has joined."""
        return await self._store.beat(
            key,
            pulse.load,
            draining=pulse.draining,
            kv_transport=pulse.kv_transport,
            adapters=pulse.adapters,
            is_settling=pulse.is_settling,
            unread_adapters=pulse.unread_adapters,
        )

    async def Leave(
        self, request: membership_pb2.LeaveRequest, context: grpc.aio.ServicerContext
    ) -> membership_pb2.LeaveResponse:
        """Removes a worker; one that is not known is none the worse."""
        is_gone = await self._store.leave(WorkerKey(request.worker_id, request.incarnation))
        if is_gone and request.was_asked:
            self._fleet.holds.forget(request.worker_id)
        return membership_pb2.LeaveResponse()

    async def Supervised(
        self, request: membership_pb2.SupervisorReport, context: grpc.aio.ServicerContext
    ) -> membership_pb2.SupervisorReportTaken:
        """Keeps what a supervisor tells, for operators; replies with what they order."""
        try:
            self._supervision.take(request)
        except SplitserveError as error:
            await abort(context, error)
        return membership_pb2.SupervisorReportTaken(orders=self._supervision.orders.hand_out())

    async def Scale(
        self, request: membership_pb2.ScaleOrder, context: grpc.aio.ServicerContext
    ) -> membership_pb2.ScaleAnswer:
        """The supervisor's answer, within seconds, or a refusal in its place."""
        answer = await self._supervision.orders.give(request)
        if not (answer.reason or request.dry_run):
            by = request.by or "an operator"
            sizes = f"from {answer.size_before} to {answer.size}, by {by}"
            self._fleet.diary.note(Happening.SCALED, request.pool, sizes)
        return answer

    async def Hold(
        self, request: membership_pb2.HoldOrder, context: grpc.aio.ServicerContext
    ) -> membership_pb2.HoldAnswer:
        """What it does, or why it does not. See HoldOrders."""
        try:
            return self._hold_orders.give(request)
        except SplitserveError as error:
            await abort(context, error)

    async def HandOnCache(
        self, request: membership_pb2.HandOnOrder, context: grpc.aio.ServicerContext
    ) -> membership_pb2.HandOnAnswer:
        """What was handed on, or why nothing, a little before the call's deadline."""
        remaining_s = context.time_remaining()
        limit_s = HAND_ON_S if remaining_s is None else min(HAND_ON_S, remaining_s * 0.95)
        return await self._hand_on_orders.give(request, timeout_s=limit_s)

    async def LoadAdapter(
        self, request: worker_pb2.LoadAdapterRequest, context: grpc.aio.ServicerContext
    ) -> membership_pb2.AdapterAnswer:
        """What came of it, worker by worker."""
        try:
            return await self._adapter_orders.load(request)
        except SplitserveError as error:
            await abort(context, error)

    async def UnloadAdapter(
        self, request: worker_pb2.UnloadAdapterRequest, context: grpc.aio.ServicerContext
    ) -> membership_pb2.AdapterAnswer:
        """What came of it, worker by worker."""
        try:
            return await self._adapter_orders.unload(request)
        except SplitserveError as error:
            await abort(context, error)

    async def Members(
        self, request: membership_pb2.MembersRequest, context: grpc.aio.ServicerContext
    ) -> membership_pb2.MembersResponse:
        """The router's view."""
        return membership_pb2.MembersResponse(
            members=self._member_states(),
            num_queued=self._lines.num_queued,
            num_in_flight=self._lines.num_running,
            uptime_s=self._clock() - self._started_s,
            version=VERSION,
            spares=self._supervision.spares,
            restarts=self._supervision.restarts,
            given_up=self._given_up(),
            routers=self._routers(),
            pools=self._supervision.pools,
            pairings=map(
                _pairing_to_wire,
                pairing_states(self._fleet.members, self._fleet.chosen_model),
            ),
        )

    def _member_states(self) -> list[membership_pb2.MemberState]:
        states, later = [], self._settling.all_later()
        for state in self._store.members():
            item = self._fleet.find(state.member.key)
            is_silent = item is not None and self._fleet.is_silent(item)
            states.append(
                membership_pb2.MemberState(
                    member=member_to_wire(replace(state.member, kv_reader_secret="")),
                    load=load_to_wire(state.load),
                    beat_age_s=max(0.0, self._clock() - state.heard_s),
                    state=self._fleet.state_of(item) if item else "ready",
                    num_in_flight=item.num_in_flight if item else 0,
                    indexed_blocks=self._index.num_blocks_of(state.member.key),
                    hold=item.hold.kind if item else "",
                    adapters=map(adapter_to_wire, state.adapters),
                    is_drained=item is not None and item.is_drained(is_silent=is_silent),
                    settles_later=later.get(state.member.key, ""),
                )
            )
        return states


def _pairing_to_wire(state: PairingState) -> membership_pb2.PairingState:
    return membership_pb2.PairingState(
        digest=state.digest,
        model_digest=state.model_digest,
        num_prefill=state.num_prefill,
        num_decode=state.num_decode,
        is_served=state.is_served,
        lacks=state.lacks or "",
    )


def _pulse_from_wire(message: membership_pb2.BeatRequest) -> Pulse:
    """Checked. Raises InvalidRequest."""
    _check_length("kv_transport", message.kv_transport)
    return Pulse(
        load=_checked_load(message.load),
        draining=message.draining,
        kv_transport=message.kv_transport,
        hold=hold_from_wire(message.hold),
        adapters=adapters_from_wire(message.adapters),
        is_settling=message.is_settling,
        unread_adapters=unread_from_wire(message.unread_adapters),
    )


def _checked_load(message: worker_pb2.EngineLoad) -> EngineLoad:
    load = load_from_wire(message)
    if (fault := load.fault) is not None:
        raise InvalidRequest(fault)
    return load


def _check_length(name: str, value: str) -> None:
    if len(value) > MAX_NAME_CHARS:
        raise InvalidRequest(f"{name} has {len(value)} characters; at most {MAX_NAME_CHARS}")
