"""A worker's place in its fleet: where it has one, its routers send it requests.

offer   the model is loaded, and the fleet may be told of this worker
take    ready, and joins: at once, or, of a spare worker, when its supervisor promotes it
settle  for probes it is ready: all routers have taken it, and none wants others to go first
leave   at the end; without a place there is nobody to tell

Each router is told on its own: one that is away, or refuses, has no part in what the others do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from cluster.adapter import NOTHING_UNREAD, OfferedAdapter, UnreadAdapters
from cluster.cache_heirs import CacheHeirs
from cluster.config import WorkerOptions
from cluster.deadline import Clock, Sleep
from cluster.errors import Draining, NotReady
from cluster.membership.client import MembershipClient, Pulse
from cluster.membership.hold import NO_HOLD, WorkerHold
from cluster.membership.member import Member
from cluster.membership.reach import RouterPlace
from cluster.process.background import Background, cancel
from cluster.process.lifespan import Lifespan, ProcessState
from cluster.rpc import RpcServer
from cluster.world import World
from worker.engine_view import EngineView
from worker.router_names import RouterNames


class OwnPlace:
    """Owns the membership. All calls from the event loop."""

    def __init__(
        self,
        options: WorkerOptions,
        lifespan: Lifespan,
        server: RpcServer,
        background: Background,
        world: World,
    ) -> None:
        self._options = options
        self._lifespan = lifespan
        self._server = server
        self._background = background
        self._world = world
        self._offered: tuple[Member, EngineView] | None = None
        self._routers = () if options.router is None else RouterPlace.parse_all(options.router)
        self._clients: dict[RouterPlace, MembershipClient] = {}
        self._tasks: dict[RouterPlace, asyncio.Task[None]] = {}
        self._refusing: set[RouterPlace] = set()
        self._is_settled = False
        """Once, for ever: a router that restarts later takes nobody out of service."""
        self.adapters: Callable[[], tuple[OfferedAdapter, ...]] = tuple
        """That requests may ask for, at this moment."""
        self.unread_adapters: Callable[[], UnreadAdapters] = lambda: NOTHING_UNREAD
        """That it may offer soon."""
        self._hold = NO_HOLD
        """The newest that any router has told; the others are told it."""

    @property
    def clock(self) -> Clock:
        """Of the world that it is in."""
        return self._world.clock

    @property
    def sleep(self) -> Sleep:
        """As `clock`."""
        return self._world.sleep

    def why_not_ready(self) -> str | None:
        """None while its routers send it requests; else why they do not. For probes."""
        if self._lifespan.state is not ProcessState.READY:
            return f"this worker is {self._lifespan.state.value}"
        if self._routers and (lack := self._why_not_settled()) is not None:
            return lack
        return None if self._is_wanted else "its routers refuse this worker"

    def _why_not_settled(self) -> str | None:
        """A rolling update goes on when this worker is ready, and those before it leave: none of
        its routers may need these any more. Later on one that refuses takes nobody out."""
        if self._is_settled:
            return None
        clients = tuple(self._clients.values())
        if not any(client.is_in_touch for client in clients):
            return "no router has taken this worker yet"
        if any(client.is_undecided for client in clients):
            return "a router has not taken this worker yet"
        for client in clients:
            if later := client.settles_later:
                return f"it waits for others of its pairing: {later}"
        self._is_settled = True
        self.beat_soon()  # others may settle in their turn
        return None

    @property
    def _is_wanted(self) -> bool:
        return len(self._refusing) < max(1, len(self._clients))

    async def offer(self, member: Member, engine: EngineView) -> None:
        """Once, when requests could be computed. A spare worker waits from now on."""
        self._offered = member, engine
        if self._options.spare:
            self._lifespan.advance(ProcessState.SPARE)
        else:
            await self.take()

    async def take(self) -> None:
        """Requests may come. Raises NotReady while the worker loads, Draining when it is to end;
        one that has its place keeps it."""
        if self._offered is None:
            raise NotReady("this worker is still loading")
        if self._lifespan.advance(ProcessState.READY):
            await self._server.set_ready(True)
            if not self._lifespan.is_draining:
                self._join(*self._offered)
        elif self._lifespan.is_draining:
            raise Draining("this worker ends, and takes no place in the fleet")

    def beat_soon(self) -> None:
        """Something changed that routers should know at once, such as a drain."""
        for client in self._clients.values():
            client.beat_soon()

    async def hand_on(self, limit_s: float) -> None:
        """Others take over what is cached here, as a router that is in touch sees fit."""
        routers = [place for place, client in self._clients.items() if client.is_in_touch]
        if self._offered is not None and routers and limit_s > 0:
            heirs = CacheHeirs(str(routers[0]), lambda: self._world.dialer)
            await heirs.take_over(self._offered[0].worker_id, limit_s=limit_s)

    async def leave(self, *, was_asked: bool) -> None:
        """Says goodbye to all at once; `was_asked`: see MembershipClient.leave. Idempotent."""
        await cancel(self._tasks.values())
        clients, self._clients = self._clients, {}
        await asyncio.gather(*(each.leave(was_asked=was_asked) for each in clients.values()))

    def _join(self, member: Member, engine: EngineView) -> None:
        names = [router for router in self._routers if router.is_each_address]
        for router in self._routers:
            if not router.is_each_address:
                self._join_at(router, member, engine)
        if names:
            follow = partial(RouterNames(names, self._world).follow, self._take_found)
            self._tasks[names[0]] = self._background.keep("routers of a name", follow)

    def _take_found(self, found: frozenset[RouterPlace]) -> None:
        """One that has gone from its name may still have requests here: it is left once it does
        not answer any more."""
        assert self._offered is not None
        for router in found - self._clients.keys():
            self._join_at(router, *self._offered)
        named = found.union(self._routers)
        for router, client in list(self._clients.items()):
            if router not in named and not client.is_in_touch:
                del self._clients[router]
                self._refusing.discard(router)
                ending = _end(client, self._tasks.pop(router))
                self._background.once(f"end of membership {router}", ending)

    def _join_at(self, router: RouterPlace, member: Member, engine: EngineView) -> None:
        client = self._clients[router] = MembershipClient(
            str(router),
            member,
            lambda: self._pulse(engine),
            self._world,
            on_refusal=partial(self._take_refusal, router),
            on_hold=self._hear_of_hold,
        )
        self._tasks[router] = self._background.keep(f"membership {router}", client.run)

    def _pulse(self, engine: EngineView) -> Pulse:
        return Pulse(
            load=engine.load,
            draining=self._lifespan.is_draining,
            kv_transport=engine.kv_transport,
            hold=self._hold,
            adapters=self.adapters(),
            is_settling=self._why_not_settled() is not None,
            unread_adapters=self.unread_adapters(),
        )

    def _hear_of_hold(self, told: WorkerHold) -> None:
        """Who asks for requests is not this worker's to say: it carries the word to the others."""
        if told.is_newer_than(self._hold):
            self._hold = told
            self.beat_soon()

    def _take_refusal(self, router: RouterPlace, is_refused: bool) -> None:
        """Nobody sends anything to a worker that no router takes: it is not ready."""
        if is_refused:
            self._refusing.add(router)
        else:
            self._refusing.discard(router)
        if not self._lifespan.is_draining:
            self._background.once("health", self._server.set_ready(self._is_wanted))


async def _end(client: MembershipClient, beating: asyncio.Task[None]) -> None:
    await cancel([beating])
    await client.leave()
