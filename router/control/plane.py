"""Everything behind the router's front, put together: store, fleet, index, policy, dispatcher."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from prometheus_client import CollectorRegistry

from cluster.config import RouterOptions
from cluster.identity import Role
from cluster.membership.expiry import AwakeClock, Expiry, Lease
from cluster.membership.memory import MemoryMembership
from cluster.process.background import Background, OnLoss
from cluster.process.loop_lag import LoopLag
from cluster.process.loop_share import LoopShare
from cluster.rpc import RpcServer
from cluster.world import World
from protos import fleet_watch_pb2_grpc, membership_pb2_grpc, router_admin_pb2_grpc
from router.control.adapter_orders import AdapterOrders
from router.control.admin_service import ADMIN_SERVICE_NAME, RouterAdminService
from router.control.fleet_relay import FleetRelay
from router.control.fleet_watch import WATCH_SERVICE_NAME
from router.control.join_rules import JoinRules, OwnModel
from router.control.membership_service import SERVICE_NAME, JoinTerms, MembershipService
from router.control.pairing_watch import watch_pairings
from router.control.route_prices import PromptReader, RoutePrices
from router.control.supervision import Supervision
from router.control.watching import Watching
from router.dispatch.admission import Admission
from router.dispatch.attempts import AttemptRules
from router.dispatch.both_lines import BothLines
from router.dispatch.degradation import Degradation, steps_of
from router.dispatch.dispatcher import Dispatcher
from router.dispatch.fleet_room import FleetRoom, Unreserved
from router.dispatch.passing import Passing
from router.dispatch.retry_budget import RetryBudget
from router.dispatch.routing import RoutingDesk
from router.dispatch.sending import Sending
from router.fairness.shares import Shares
from router.fleet.event_followers import EventFollowers
from router.fleet.first_look import FirstLook
from router.fleet.fleet import Fleet
from router.fleet.fleet_adapters import FleetAdapters
from router.fleet.fleet_time import FleetTime
from router.fleet.sessions import Sessions
from router.fleet.worker_link import WorkerAdapter
from router.index.prefix_index import PrefixIndex
from router.pricing.estimates import Estimates
from router.sharing.circle import Circle, CirclePlace
from router.telemetry.circle_metrics import CircleMetrics
from router.telemetry.decisions import DecisionLog
from router.telemetry.member_metrics import MemberStanding
from router.telemetry.metrics import RouterMetrics
from router.vllm.introduction import FrontedModel
from router.vllm.named_servers import fleet_of_named
from router.vllm.vllm_fleet import VllmFleet


class FleetPlane:
    """The WorkerPlane of `router.router_process`: workers join over gRPC, requests go to them.

    `own` is the model that the router has loaded: workers with another tokenizer are refused, those
    of other weights are not (see JoinRules). `on_loss` hears when something ends without which the
    router is of no use. `world.chance` draws among workers of nearly equal price.
    """

    def __init__(
        self,
        options: RouterOptions,
        own: OwnModel,
        world: World,
        *,
        on_loss: OnLoss = lambda loss: None,
        circle: CirclePlace | None = None,
        fronted: FrontedModel | None = None,
        share: LoopShare | None = None,
    ) -> None:
        """`circle`: where other routers of the same fleet are met; None: there are none.
        `fronted`: the model, for the vLLM servers named. `share`: see CompletionPipeline."""
        self._world, self._share, self._options = world, share or LoopShare(), options
        self.metrics = RouterMetrics()
        self.lag = LoopLag()
        self.lag.publish(self.metrics.registry)
        self.decisions = DecisionLog()
        self._background = Background(on_loss, clock=world.clock, sleep=world.sleep)
        self._vllm = self._vllm_fleet(options, fronted)
        awake = AwakeClock(world.clock)
        self.store = MemoryMembership(options.worker_lease_s, clock=awake)
        self._index = PrefixIndex(options.index_max_blocks, has_digests=circle is not None)
        self._followers = EventFollowers(self._index, self.metrics, self._background, self._share)
        self.estimates = estimates = Estimates(world.clock)
        time = FleetTime(Lease(options.worker_lease_s, awake), world.clock)
        self.fleet = self._new_fleet(estimates, world, time)
        self.adapters = FleetAdapters(self.fleet, world.clock, model_name=own.name)
        self.adapter_orders = AdapterOrders(
            self.fleet, self._background, world, model_name=own.name
        )
        watch_pairings(self.fleet, own, self.metrics.registry)
        self.circle = None if circle is None else self._new_circle(circle, estimates)
        self.lines = self._new_lines(options, world, own.pooling)
        self.admission = self.lines.tokens
        steps, given_up = steps_of(options.degrade or ""), self.fleet.diary.given_up
        self.degradation = Degradation(steps, world.clock, given_up)
        rules = self._attempt_rules(options)
        lives = self.fleet.lives
        self._expiry = Expiry(self.store, awake, lives, clock=world.clock, sleep=world.sleep)
        self.desk = self._new_desk(estimates, world)
        self._sending = self._new_sending(estimates)
        self.source = self._new_dispatcher(rules)
        watched = (self.fleet, estimates, self.lines, self.metrics)
        self._watching = Watching(*watched, options.budgets, world.clock)
        parts = (self.fleet, self._followers, world.clock, options.snapshot_wait_s)
        self._first_look = FirstLook(*parts, self._why_circle_is_not_whole)
        self._supervision = Supervision(self.metrics, self.fleet.diary)
        self._service = self._membership_service(options, own, awake)

    @property
    def registry(self) -> CollectorRegistry:
        """The router's metrics."""
        return self.metrics.registry

    @property
    def index(self) -> PrefixIndex:
        """Who holds which prefix."""
        return self._index

    @property
    def passing(self) -> Passing | None:
        """For a gateway that sends requests by itself; None: there is no vLLM server."""
        return None if self._vllm is None else Passing(self.source, self._sending, self._vllm)

    def why_not_ready(self) -> str | None:
        """None when somebody answers (a decode worker, or one that pools where no other has been),
        and the workers' caches are known or have had their time to become it; else what is
        missing."""
        return self._first_look.why_not_ready()

    def register(self, server: RpcServer, reader: PromptReader) -> None:
        """Adds the services for workers and operators; before the server starts. They answer while
        no worker is there: the first one could not join otherwise."""
        prices = RoutePrices(self.desk, self.fleet, reader, self._world)
        relay = FleetRelay(
            self.fleet, lambda: self._supervision.spares, self.registry, self._world.dialer
        )
        admin = RouterAdminService(self.decisions, prices, self._world.clock, self._options, relay)
        add_membership = membership_pb2_grpc.add_MembershipServicer_to_server
        add_admin = router_admin_pb2_grpc.add_RouterAdminServicer_to_server
        add_watch = fleet_watch_pb2_grpc.add_FleetWatchServicer_to_server
        server.add(add_membership, self._service, SERVICE_NAME, always_ready=True)
        server.add(add_admin, admin, ADMIN_SERVICE_NAME, always_ready=True)
        watch = self._watching.service(self.source.in_flight, self.decisions)
        server.add(add_watch, watch, WATCH_SERVICE_NAME, always_ready=True)

    def _new_fleet(self, estimates: Estimates, world: World, time: FleetTime) -> Fleet:
        for role in Role:
            self.metrics.watch_members(role.value, partial(self._num_members, role))
        self.metrics.watch_states(self._standings)
        return Fleet(
            *(self.store, estimates, self._background),
            followers=self._followers,
            sessions=Sessions(world, self._background, self._adapters),
            time=time,
        )

    def _vllm_fleet(self, options: RouterOptions, fronted: FrontedModel | None) -> VllmFleet | None:
        """None where no vLLM servers are named. Raises ConfigError."""
        return fleet_of_named(
            options,
            fronted,
            self._world,
            self._background,
            metrics=self.metrics,
            on_gone=lambda worker_id: self.fleet.holds.forget(worker_id),
        )

    @property
    def _adapters(self) -> tuple[WorkerAdapter, ...]:
        return () if self._vllm is None else (self._vllm,)

    def _new_lines(self, options: RouterOptions, world: World, pooling: str) -> BothLines:
        tokens = self._new_admission(options, world)
        pooled = self._new_admission(options, world, pooling) if pooling else None
        return BothLines(tokens, pooled)

    def _new_admission(self, options: RouterOptions, world: World, pooling: str = "") -> Admission:
        """It looks for room whenever a worker comes, goes or says how it is."""
        limits = options.max_running_requests, options.max_queued_requests
        reserves = options.reserve_room
        room = FleetRoom(self.fleet, world.clock, pooling) if reserves else Unreserved()
        admission = Admission(*limits, room=room, shares=self._shares_of, clock=world.clock)
        self.fleet.changes.watch(admission.look)
        self.store.watch(lambda change: admission.look())
        if self.circle is not None and not pooling:
            self.circle.tells_of(admission)
        return admission

    def _new_desk(self, estimates: Estimates, world: World) -> RoutingDesk:
        return RoutingDesk(
            self.fleet,
            self._index,
            estimates,
            world.chance,
            lambda: self.degradation.allows_local_prefill,
        )

    def _new_sending(self, estimates: Estimates) -> Sending:
        return Sending(
            fleet=self.fleet,
            adapters=self.adapters,
            index=self._index,
            desk=self.desk,
            estimates=estimates,
            metrics=self.metrics,
            decisions=self.decisions,
        )

    def _new_dispatcher(self, rules: AttemptRules) -> Dispatcher:
        return Dispatcher(
            self.lines,
            self._sending,
            rules=rules,
            degradation=self.degradation,
            share=self._share,
        )

    def _new_circle(self, place: CirclePlace, estimates: Estimates) -> Circle:
        fleet, index, followers = self.fleet, self._index, self._followers
        circle = Circle(place, fleet, index, followers, estimates, self._world, self._share)
        metrics = CircleMetrics(self.metrics.registry)
        metrics.watch_routers(lambda: circle.num_alive, lambda: len(circle.disagreeing))
        metrics.watch_digests(lambda: circle.index_digest, lambda: circle.load_digest)
        return circle

    def _why_circle_is_not_whole(self) -> str | None:
        return None if self.circle is None else self.circle.why_not_whole()

    def _shares_of(self, level: int) -> Shares:
        """Of one class; with other routers' where there are any."""
        return Shares(None if self.circle is None else self.circle.served.of_class(level))

    def _attempt_rules(self, options: RouterOptions) -> AttemptRules:
        retries = RetryBudget(lambda: self.lines.num_running, self._world.clock)
        return AttemptRules(
            retries, options.continue_streams, options.max_preemptions, options.hedge_after
        )

    def _num_members(self, role: Role) -> int:
        return len(self.fleet.with_role(role))

    def _standings(self) -> Iterator[MemberStanding]:
        for item in self.fleet.members:
            role, window = item.member.role.value, item.slow_start.window
            yield MemberStanding(item.key.worker_id, role, self.fleet.state_of(item), window)

    async def start(self) -> None:
        """Begins to remove workers that fall silent, and to talk with other routers."""
        self.lag.start()
        self.adapters.begin()
        if self.circle is not None:
            self.circle.start(self._background)
        self._background.need("membership-expiry", self._expiry.run())
        self._background.keep("lately", partial(self._watching.run, self._world.sleep))
        if self._vllm is not None:
            self._vllm.start(self.store)

    async def close(self) -> None:
        """Ends every session and event follower; requests that still run end with WorkerLost."""
        await self.fleet.close()
        if self._vllm is not None:
            await self._vllm.close()
        await self._background.close()
        if self.circle is not None:
            await self.circle.close()
        await self.lag.close()

    def _membership_service(
        self, options: RouterOptions, own: OwnModel, awake: AwakeClock
    ) -> MembershipService:
        rules = JoinRules(
            self.store,
            own,
            beat_interval_s=options.beat_interval_s,
            is_cut_off=self.fleet.is_cut_off,
            clock=awake,
        )
        return MembershipService(
            self.store,
            self.fleet,
            self._index,
            self.lines,
            JoinTerms.of(rules, options),
            self._supervision,
            clock=awake,
            dialer=self._world.dialer,
            adapter_orders=self.adapter_orders,
            given_up=lambda: self.degradation.in_words,
            routers=self.circle.states if self.circle is not None else list,
            on_unknown=self._first_look.hear_former,
        )
