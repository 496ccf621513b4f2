"""`splitserve flip`: a worker gives its place to one of the other role, which takes over its cache.

    side by side   a new worker starts in the other pool, ready
                   -> it takes over what the old one has cached -> the old one drains, and goes
    one by one     where there is no room for both: the old one hands on to others, drains and goes
                   -> the new one starts

A role belongs to a process, so that the worker's name changes with it. A spare worker of the other
pool takes the place at once, where there is one. Both pools are judged before anything is done.

exit code 0 done, 1 not agreed to, or not done in time, 3 nobody answers, 4 refused
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import typer

from cli.exit_code import ExitCode
from cli.handed_on import hand_on, newest_event, say_handed_on
from cli.json_output import print_data
from cli.question import complained
from cli.release import at_release
from cli.table import Table
from cli.terminal import complain, say
from cluster.deadline import Deadline
from cluster.dial.dialer import Dialer
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import SplitserveError
from cluster.identity import Role
from cluster.join_token import operators_token
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.scaler import (
    NotSettled,
    PoolState,
    RefusalReason,
    ScaleOrder,
    ScalePlan,
    Scaler,
    ScaleRefused,
    wait_until_ready,
)
from cluster.scaling.supervised import TIMEOUT_S, SupervisedScaler

_NO_ROOM = (
    RefusalReason.GPUS,
    RefusalReason.ROOM,
    RefusalReason.OPTIONS,
    RefusalReason.QUOTA,
)
"""For one worker more, as long as the old one is there."""
HandOn = Callable[[Sequence[str]], Awaitable[None]]
"""Called when these new workers are ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRequest:
    """The command's words."""

    worker_id: str
    role: Role
    is_dry_run: bool = False
    waits: bool = False
    """Until the old worker is gone, too."""
    is_agreed: bool = False
    deadline_s: float = 600.0
    output: str = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipPlan:
    """What is to be done."""

    worker_id: str
    growing: ScalePlan
    shrinking: ScalePlan
    is_side_by_side: bool
    """The new worker is there before the old one goes."""
    why_not: str = ""
    """Why it is not, in words."""


def run_flip(address: str, request: FlipRequest) -> ExitCode:
    """See the head of the file. `address`: the router's."""
    try:
        return asyncio.run(_flip_supervised(GrpcDialer(operators_token()), address, request))
    except SplitserveError as failure:
        return complained(failure, address)


def flip_in_release(named: str, request: FlipRequest) -> ExitCode:
    """The same on Kubernetes, [NAMESPACE/]RELEASE: the pod is the one that its Deployment loses
    first, and hands on what it has cached as it ends, where the chart lets it."""

    async def nothing_more(starting: Sequence[str]) -> None:
        """The pod itself does it."""

    return at_release(
        named, lambda api, release: flip(KubernetesScaler(api, release), request, nothing_more)
    )


async def _flip_supervised(dialer: Dialer, address: str, request: FlipRequest) -> ExitCode:
    scaler, router = SupervisedScaler(dialer, address), dialer.operator(address)

    async def to_new_ones(starting: Sequence[str]) -> None:
        await hand_on(router, request.worker_id, starting)

    try:
        members = (await router.members(timeout_s=TIMEOUT_S)).members
        roles = {state.member.worker_id: state.member.role for state in members}
        before = await newest_event(router) if request.waits else 0
        code = await flip(scaler, request, to_new_ones, roles=roles)
        if request.waits:
            await say_handed_on(router, before)
        return code
    finally:
        await router.close()
        await scaler.close()


async def flip(
    scaler: Scaler,
    request: FlipRequest,
    hand_on_to: HandOn,
    *,
    roles: Mapping[str, str] | None = None,
) -> ExitCode:
    """`roles`: of all workers by id; None: pools know which are theirs."""
    try:
        plan = await _plan(scaler, request, roles)
        _show(plan, request.output)
        if request.is_dry_run:
            return ExitCode.OK
        if not (request.is_agreed or typer.confirm("go on?", err=True)):
            return ExitCode.FAILED
        await _carry_out(scaler, plan, request, hand_on_to)
    except ScaleRefused as refusal:
        complain(f"refused ({refusal.reason}): {refusal.message}")
        return ExitCode.REFUSED
    except NotSettled as failure:
        complain(str(failure), remedy="see `splitserve status` and the worker's log")
        return ExitCode.FAILED
    say(f"{request.worker_id} gave its place to a {request.role} worker")
    return ExitCode.OK


async def _plan(scaler: Scaler, request: FlipRequest, roles: Mapping[str, str] | None) -> FlipPlan:
    """Raises ScaleRefused."""
    pools = {state.name: state for state in await scaler.pools()}
    leaving = _pool_of(request, pools, roles)
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
    wanted = pools[request.role].num_wanted + 1 if request.role in pools else 1
    grow = ScaleOrder(pool=request.role, size=wanted, is_dry_run=True)
    try:
        growing, why_not = await scaler.scale(grow), ""
    except ScaleRefused as refusal:
        if refusal.reason not in _NO_ROOM:
            raise
        growing = ScalePlan(pool=request.role, size_before=wanted - 1, size=wanted)
        why_not = refusal.message
    return FlipPlan(
        worker_id=request.worker_id,
        growing=growing,
        shrinking=shrinking,
        is_side_by_side=not why_not,
        why_not=why_not,
    )


def _pool_of(
    request: FlipRequest, pools: Mapping[str, PoolState], roles: Mapping[str, str] | None
) -> str:
    """The worker's; of pools without names of workers the only other one. Raises ScaleRefused."""
    other = Role.PREFILL if request.role is Role.DECODE else Role.DECODE
    role = other if roles is None else roles.get(request.worker_id)
    if role is None:
        raise ScaleRefused(
            RefusalReason.NO_SUCH_WORKER,
            f"no worker {request.worker_id!r} has joined; `splitserve get workers` lists them",
        )
    if role == request.role:
        raise ScaleRefused(
            RefusalReason.OPTIONS, f"{request.worker_id} is a {request.role} worker already"
        )
    if role not in pools:
        raise ScaleRefused(
            RefusalReason.UNSUPERVISED if not pools else RefusalReason.NO_SUCH_POOL,
            f"no supervisor keeps a pool of {role} workers: {request.worker_id} is started and "
            "ended by whoever did so before",
        )
    return role


async def _carry_out(
    scaler: Scaler, plan: FlipPlan, request: FlipRequest, hand_on_to: HandOn
) -> None:
    """Raises ScaleRefused and NotSettled: what was done by then stays, and is said."""
    deadline = Deadline.after(request.deadline_s)
    grow = ScaleOrder(pool=plan.growing.pool, size=plan.growing.size)
    shrink = ScaleOrder(
        pool=plan.shrinking.pool, size=plan.shrinking.size, leaving=(plan.worker_id,)
    )
    if plan.is_side_by_side:
        starting = await _reach(scaler, grow, deadline)
        say(f"{', '.join(starting.starting) or plan.growing.pool} is ready")
        await hand_on_to(starting.starting)
        if request.waits:
            await _reach(scaler, shrink, deadline)
        else:
            await scaler.scale(shrink)
        return
    await _reach(scaler, shrink, deadline)
    say(f"{plan.worker_id} has gone")
    try:
        await _reach(scaler, grow, deadline)
    except (ScaleRefused, NotSettled):
        complain(
            f"{plan.worker_id} has gone, and no {plan.growing.pool} worker is there in its place",
            remedy=f"splitserve scale {plan.growing.pool}={plan.growing.size}",
        )
        raise


async def _reach(scaler: Scaler, order: ScaleOrder, deadline: Deadline) -> ScalePlan:
    plan = await scaler.scale(order)
    await wait_until_ready(scaler, {order.pool: order.size}, deadline, asyncio.sleep)
    return plan


def _show(plan: FlipPlan, output: str) -> None:
    if print_data(plan, output):
        return
    table = Table("POOL", "NOW", "THEN", "GPUS", "STARTING", "LEAVING")
    for each in (plan.growing, plan.shrinking):
        sizes = (str(each.size_before), str(each.size), str(each.num_gpus))
        table.add(
            each.pool, *sizes, ", ".join(each.starting) or "-", ", ".join(each.leaving) or "-"
        )
    table.print()
    if plan.is_side_by_side:
        say(
            f"a {plan.growing.pool} worker starts and takes over what {plan.worker_id} has cached; "
            f"then {plan.worker_id} drains: its requests end there or go on elsewhere"
        )
    else:
        say(
            f"there is no room for both at once ({plan.why_not}): {plan.worker_id} hands on what "
            "others have room for, drains and goes; the rest of its cache is lost; then a "
            f"{plan.growing.pool} worker starts"
        )
