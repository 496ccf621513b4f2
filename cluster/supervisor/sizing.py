"""How many workers each pool of a supervised fleet is to have, and the way there.

    wanted -> the new workers start, at once; one that does not start is given up, and said
           -> of those who leave others take over what is cached; then they are told to drain, and
              go when their requests have gone on or ended

One change of a pool at a time. A pool with spares gives a place to a spare, and starts a new one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence

from cluster.config import ServeOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.launcher.protocol import ProcessSpec
from cluster.logs import get_logger
from cluster.process.background import Background, nothing_needed
from cluster.scaling.scaler import (
    PoolState,
    RefusalReason,
    ScaleOrder,
    ScalePlan,
    ScaleRefused,
    check_order,
)
from cluster.supervisor.child import Child, ChildState, StartFailed
from cluster.supervisor.fleet import Machine
from cluster.supervisor.growth import Growth, free_names
from cluster.supervisor.place import CheckRoom, there_is_room
from cluster.supervisor.pool import PoolSize
from cluster.supervisor.reserve import Reserve
from cluster.supervisor.supervisor import Supervisor

MAX_PROBLEM_CHARS = 1000
"""Of what a process says of its failed start, for operators."""
_log = get_logger("supervisor")


@dataclasses.dataclass(slots=True)
class _Pool:
    """What is wanted of it."""

    size: PoolSize
    generation: int = 1
    is_changing: bool = False
    problem: str = ""


class Sizing:
    """Of one fleet. All calls from one event loop; `close` before the supervisor stops."""

    def __init__(
        self,
        options: ServeOptions,
        machine: Machine,
        pools: Sequence[PoolSize],
        supervisor: Supervisor,
        reserve: Reserve,
        *,
        free_memory_share: Callable[[], float],
        check_room: CheckRoom = there_is_room,
        grace_s: float,
        hand_on: Callable[[str, Sequence[str]], Awaitable[None]],
    ) -> None:
        """`free_memory_share`: of this machine, now. `grace_s`: for a worker that leaves. `hand_on`
        is awaited before it does, with its name: others take over what it has cached; with names
        of workers, none but these."""
        self._options = options
        self._machine = machine
        self._pools = {pool.name: _Pool(pool) for pool in pools}
        self._supervisor = supervisor
        self._reserve = reserve
        self._free_memory_share = free_memory_share
        self._room = check_room
        self._grace_s = grace_s
        self._hand_on = hand_on
        self._who_leave: set[str] = set()
        self._background = Background(nothing_needed)

    @property
    def states(self) -> list[PoolState]:
        """Of all pools, now."""
        return [self._state(pool) for pool in self._pools.values()]

    async def take(self, order: ScaleOrder) -> ScalePlan:
        """Begins it, unless it is only to be judged. One at a time. Raises ScaleRefused."""
        check_order(order, list(self._pools))
        pool = self._pools[order.pool]
        self._check_may_change(pool)
        before = pool.size.num_places
        wanted = dataclasses.replace(pool.size, num_places=order.size)
        plan = ScalePlan(pool=order.pool, size_before=before, size=order.size)
        specs: list[ProcessSpec] = []
        if order.size > before:
            growth = self._growth(wanted, order.size - before)
            specs = growth.specs(child.spec for child in self._supervisor.children)
            await self._check_room(growth)
            plan = dataclasses.replace(plan, starting=growth.names, num_gpus=growth.num_gpus)
        elif order.size < before:
            plan = dataclasses.replace(plan, leaving=self._leaving(pool, order))
        if not order.is_dry_run and order.size != before:
            self._begin(pool, wanted, specs, plan.leaving, order)
        return plan

    async def close(self) -> None:
        """What is under way stays where it is: the fleet is to end."""
        await self._background.close()

    def _check_may_change(self, pool: _Pool) -> None:
        if pool.is_changing:
            raise ScaleRefused(
                RefusalReason.CHANGING, f"{pool.size.name} is on its way to another size"
            )
        if not pool.size.num_places and self._options.warm_spares:
            raise ScaleRefused(
                RefusalReason.OPTIONS,
                f"the fleet began without {pool.size.name} workers and with warm spares; start it "
                f"again with --{pool.size.name} 1",
            )

    async def _check_room(self, growth: Growth) -> None:
        try:
            await self._room(growth.num_ranks)
        except ConfigError as refusal:
            raise ScaleRefused(RefusalReason.ROOM, refusal.message) from refusal

    def _growth(self, wanted: PoolSize, number: int) -> Growth:
        sizes = {pool.size.role: pool.size for pool in self._pools.values()} | {wanted.role: wanted}
        options = dataclasses.replace(
            self._options,
            prefill=sizes[Role.PREFILL].num_places,
            decode=sizes[Role.DECODE].num_places,
        )
        num_all = sum(size.num_workers for size in sizes.values())
        share = min(self._machine.free_memory_share, self._free_memory_share() * num_all)
        machine = dataclasses.replace(self._machine, free_memory_share=share)
        taken = [child.spec.name for child in self._children(wanted.role)]
        return Growth(options, machine, wanted.role, free_names(wanted.role, taken, number))

    def _leaving(self, pool: _Pool, order: ScaleOrder) -> tuple[str, ...]:
        """Those that were named, then the youngest, of whom has a place."""
        spares = {spare.name for spare in self._reserve.spares}
        names = [child.spec.name for child in self._children(pool.size.role)]
        placed = [name for name in names if name not in spares]
        if unknown := set(order.leaving) - set(placed):
            raise ScaleRefused(
                RefusalReason.NO_SUCH_WORKER,
                f"{', '.join(sorted(unknown))}: no worker of {order.pool}, which has "
                f"{', '.join(placed)}",
            )
        others = [name for name in reversed(placed) if name not in order.leaving]
        return (*order.leaving, *others)[: pool.size.num_places - order.size]

    def _begin(
        self,
        pool: _Pool,
        wanted: PoolSize,
        specs: Sequence[ProcessSpec],
        leaving: Sequence[str],
        order: ScaleOrder,
    ) -> None:
        pool.size, pool.is_changing, pool.problem = wanted, True, ""
        pool.generation += 1
        self._reserve.resize(wanted, [spec.name for spec in specs])
        self._who_leave.update(leaving)
        emptied = order.leaving if order.is_handed_on else ()
        change = self._change(pool, specs, leaving, emptied)
        self._background.once(f"size of {wanted.name}", change)

    async def _change(
        self,
        pool: _Pool,
        specs: Sequence[ProcessSpec],
        leaving: Sequence[str],
        emptied: Sequence[str],
    ) -> None:
        """`emptied`: of those who leave, whose caches others have already."""
        try:
            await asyncio.gather(
                *(self._start(pool, spec) for spec in specs),
                *(self._stop(pool, name, hands_on=name not in emptied) for name in leaving),
            )
        finally:
            pool.is_changing = False
            self._who_leave.difference_update(leaving)

    async def _start(self, pool: _Pool, spec: ProcessSpec) -> None:
        try:
            await self._supervisor.grow(spec)
        except Exception as error:
            cause = error.failure.cause if isinstance(error, StartFailed) else repr(error)
            pool.problem = f"{spec.name} did not start: {cause}"[:MAX_PROBLEM_CHARS]
            _log.exception("a new worker did not start", worker=spec.name)
            pool.size = dataclasses.replace(pool.size, num_places=pool.size.num_places - 1)
            pool.generation += 1
            self._reserve.resize(pool.size, [])

    async def _stop(self, pool: _Pool, name: str, *, hands_on: bool) -> None:
        """What fails of one keeps no other from its change."""
        try:
            if hands_on:
                await self._hand_on(name, self._heirs(name))
        except Exception:
            _log.exception("what a worker has cached was not handed on", worker=name)
        try:
            await self._supervisor.shrink(name, self._grace_s)
        except Exception as error:
            pool.problem = f"{name} did not stop: {error!r}"[:MAX_PROBLEM_CHARS]
            _log.exception("a worker that was to leave did not stop", worker=name)

    def _heirs(self, name: str) -> list[str]:
        """Those who stay, where others leave with it; else nobody is named."""
        if self._who_leave == {name}:
            return []
        workers = [child.spec.name for role in Role for child in self._children(role)]
        return [worker for worker in workers if worker not in self._who_leave]

    def _children(self, role: Role) -> list[Child]:
        prefix = f"{role}-"
        return [child for child in self._supervisor.children if child.spec.name.startswith(prefix)]

    def _state(self, pool: _Pool) -> PoolState:
        """A spare that is being started is none yet; a worker is missed until it is there."""
        children = self._children(pool.size.role)
        spares = {spare.name for spare in self._reserve.spares}
        serving = [child for child in children if child.state is ChildState.SERVING]
        return PoolState(
            name=pool.size.name,
            num_wanted=pool.size.num_places,
            num_present=max(0, len(children) - pool.size.num_spares),
            num_ready=sum(child.spec.name not in spares for child in serving),
            generation=pool.generation,
            problem=pool.problem,
        )
