"""What `splitserve flip` is to do: which pool loses a worker, which gets one, and in what order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cli.json_output import print_data
from cli.table import Table
from cli.terminal import say
from cluster.identity import Role
from cluster.scaling.scaler import (
    PoolState,
    RefusalReason,
    ScaleOrder,
    ScalePlan,
    Scaler,
    ScaleRefused,
    start_limit_of,
)

_NO_ROOM = (
    RefusalReason.GPUS,
    RefusalReason.ROOM,
    RefusalReason.OPTIONS,
    RefusalReason.QUOTA,
)
"""For one worker more, as long as the old one is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRequest:
    """The command's words."""

    worker_id: str
    place: str
    """The pool that gets a worker, or the role of its workers."""
    is_dry_run: bool = False
    waits: bool = False
    """Until the old worker is gone, too."""
    goes_first: bool = False
    """The old worker goes before the new one starts."""
    is_agreed: bool = False
    deadline_s: float | None = None
    """None: as long as the pools say that a start may take."""
    output: str = "table"
    release: str = ""
    """[NAMESPACE/]RELEASE, if it is one on Kubernetes."""

    def command(self, words: str) -> str:
        """To be typed for the same fleet."""
        where = f" --kubernetes {self.release}" if self.release else ""
        return f"splitserve {words}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipPlan:
    """What is to be done."""

    worker_id: str
    growing: ScalePlan
    shrinking: ScalePlan
    is_side_by_side: bool
    """The new worker is there before the old one goes."""
    limit_s: float
    """For it all."""
    why_not: str = ""
    """Why it is not, in words."""


async def planned(
    scaler: Scaler, request: FlipRequest, roles: Mapping[str, str] | None
) -> FlipPlan:
    """Changes nothing. `roles`: see `flip`. Raises ScaleRefused, and OrderUnanswered or
    SplitserveError where nobody answers."""
    pools = {state.name: state for state in await scaler.pools()}
    usual_s = start_limit_of(list(pools.values()))
    gaining = _gaining(request, pools)
    leaving = _leaving(request, gaining, pools, roles)
    if pools[leaving].num_wanted < 2:
        raise ScaleRefused(
            RefusalReason.BELOW_ONE,
            f"{request.worker_id} is the only worker of {leaving}; `splitserve scale {leaving}=2` "
            "starts another one first",
        )
    shrink = ScaleOrder(
        pool=leaving,
        size=pools[leaving].num_wanted - 1,
        leaving=(request.worker_id,),
        is_dry_run=True,
    )
    shrinking = await scaler.scale(shrink)
    wanted = pools[gaining].num_wanted + 1 if gaining in pools else 1
    grow = ScaleOrder(pool=gaining, size=wanted, is_dry_run=True)
    why_not = "as was asked" if request.goes_first else ""
    try:
        growing = await scaler.scale(grow)
    except ScaleRefused as refusal:
        if refusal.reason not in _NO_ROOM:
            raise
        growing = ScalePlan(pool=gaining, size_before=wanted - 1, size=wanted)
        why_not = why_not or f"there is no room for both at once: {refusal.message}"
    return FlipPlan(
        worker_id=request.worker_id,
        growing=growing,
        shrinking=shrinking,
        is_side_by_side=not why_not,
        limit_s=usual_s if request.deadline_s is None else request.deadline_s,
        why_not=why_not,
    )


def _gaining(request: FlipRequest, pools: Mapping[str, PoolState]) -> str:
    """The pool that was named, or the only one of that role. Raises ScaleRefused."""
    if request.place in pools:
        return request.place
    having = [state.name for state in pools.values() if _role_of(state) == request.place]
    if len(having) > 1:
        raise ScaleRefused(
            RefusalReason.OPTIONS,
            f"{', '.join(having)} are pools of {request.place} workers: name one of them in place "
            f"of {request.place!r}",
        )
    if not having and request.place not in set(Role):
        raise ScaleRefused(
            RefusalReason.NO_SUCH_POOL,
            f"{request.place!r} is no pool and no role; pools are {', '.join(pools) or 'none'}, "
            f"roles {', '.join(Role)}",
        )
    return having[0] if having else request.place


def _leaving(
    request: FlipRequest,
    gaining: str,
    pools: Mapping[str, PoolState],
    roles: Mapping[str, str] | None,
) -> str:
    """The worker's pool. Raises ScaleRefused."""
    own = _by_name(request, pools) if roles is None else None
    role = _role_of(own) if own else (roles or {}).get(request.worker_id)
    if role is None:
        raise ScaleRefused(
            RefusalReason.NO_SUCH_WORKER,
            f"no worker {request.worker_id!r} has joined; `splitserve get workers` lists them",
        )
    if role == (_role_of(pools[gaining]) if gaining in pools else gaining):
        raise ScaleRefused(RefusalReason.OPTIONS, f"{request.worker_id} is a {role} worker already")
    if own:
        return own.name
    if role not in pools:
        raise ScaleRefused(
            RefusalReason.UNSUPERVISED if not pools else RefusalReason.NO_SUCH_POOL,
            f"no supervisor keeps a pool of {role} workers: {request.worker_id} is started and "
            "ended by whoever did so before",
        )
    return role


def _by_name(request: FlipRequest, pools: Mapping[str, PoolState]) -> PoolState:
    """Of two pools one of whose names begins with the other's, the longer. Raises ScaleRefused."""
    found = [
        state
        for state in pools.values()
        if state.workers_begin and request.worker_id.startswith(state.workers_begin)
    ]
    if not found:
        begins = ", ".join(f"{state.workers_begin}..." for state in pools.values())
        raise ScaleRefused(
            RefusalReason.NO_SUCH_WORKER,
            f"{request.worker_id} is no worker of this release, whose pods are called "
            f"{begins or 'nothing: it has no pools'}",
        )
    return max(found, key=lambda state: len(state.workers_begin))


def _role_of(state: PoolState) -> str:
    return state.role or state.name


def show(plan: FlipPlan, request: FlipRequest) -> None:
    """On stdout; what it means on stderr."""
    if print_data(plan, request.output):
        return
    table = Table("POOL", "NOW", "THEN", "GPUS", "STARTING", "LEAVING")
    for each in (plan.growing, plan.shrinking):
        sizes = (str(each.size_before), str(each.size), str(each.num_gpus))
        table.add(
            each.pool, *sizes, ", ".join(each.starting) or "-", ", ".join(each.leaving) or "-"
        )
    table.print()
    if plan.is_side_by_side and request.release:
        say(
            f"a {plan.growing.pool} worker starts; then {plan.worker_id} drains, and hands on what "
            "it has cached to those with room, of its own role first (`splitserve events` says to "
            "whom)"
        )
    elif plan.is_side_by_side:
        say(
            f"a {plan.growing.pool} worker starts and takes over what {plan.worker_id} has cached; "
            f"then {plan.worker_id} drains: its requests end there or go on elsewhere"
        )
    else:
        say(
            f"one by one ({plan.why_not}): {plan.worker_id} hands on what others have room for, "
            "drains and goes; the rest of its cache is lost; then a "
            f"{plan.growing.pool} worker starts"
        )
