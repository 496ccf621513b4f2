"""`splitserve scale`: what it would do, a question, and the doing.

exit code 0 done, 1 not ready in time, given up or done in part, 3 nobody answers, 4 refused; an
order that nobody answers may have begun, and it is told how pools may be
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import typer

from cli.exit_code import ExitCode
from cli.handed_on import newest_event, say_handed_on
from cli.json_output import print_data
from cli.question import complained
from cli.release import at_release
from cli.scale_losses import losses
from cli.table import Table
from cli.terminal import complain, say
from cluster.deadline import Deadline
from cluster.dial.dialer import Dialer
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import SplitserveError, WorkerLost
from cluster.join_token import operators_token
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.pool_members import least_to_lose, pool_name
from cluster.scaling.scaler import (
    NotSettled,
    OrderUnanswered,
    PoolState,
    RefusalReason,
    ScaleOrder,
    ScalePlan,
    Scaler,
    ScaleRefused,
    start_limit_of,
    wait_until_ready,
)
from cluster.scaling.supervised import TIMEOUT_S, SupervisedScaler
from protos.membership_pb2 import MemberState


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRequest:
    """The command's words."""

    sizes: Mapping[str, int]
    is_dry_run: bool = False
    waits: bool = False
    is_agreed: bool = False
    deadline_s: float | None = None
    """None: as long as the pools say that a start may take."""
    output: str = "table"
    may_wait: bool = False
    """For nodes that are not there yet."""
    release: str = ""
    """[NAMESPACE/]RELEASE, if it is one on Kubernetes."""

    def command(self, sizes: Sequence[str]) -> str:
        """To be typed for the same fleet."""
        where = f" --kubernetes {self.release}" if self.release else ""
        return f"splitserve scale {' '.join(sizes)}{where}"


_WAITING = "--allow-pending, where nodes are to come: the pods wait for them"


class _DoneInPart(Exception):
    """The first orders were begun, and another was refused, or nobody has answered it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def sizes_of(words: Sequence[str]) -> dict[str, int]:
    """Of POOL=N words. Raises typer.BadParameter."""
    sizes: dict[str, int] = {}
    for word in words:
        pool, is_there, size = word.partition("=")
        if not (pool and is_there and size.lstrip("-").isdecimal()) or pool in sizes:
            raise typer.BadParameter(f"{word!r}: name each pool once, as in prefill=2 decode=4")
        sizes[pool] = int(size)
    return sizes


def run_scale(address: str, request: ScaleRequest) -> ExitCode:
    """See the head of the file. `address`: the router's."""
    try:
        return asyncio.run(_scale_supervised(GrpcDialer(operators_token()), address, request))
    except SplitserveError as failure:
        return complained(failure, address)


def scale_release(named: str, request: ScaleRequest, router: str = "") -> ExitCode:
    """The same on Kubernetes: [NAMESPACE/]RELEASE. `router`: who knows which workers are held, with
    commas; empty: nobody is asked."""
    request = replace(request, release=named)
    dialer = GrpcDialer(operators_token())
    return at_release(
        named,
        lambda api, release: _scale_release(
            KubernetesScaler(api, release), request, dialer, router.partition(",")[0]
        ),
    )


async def _scale_release(
    scaler: Scaler, request: ScaleRequest, dialer: Dialer, router: str
) -> ExitCode:
    """Held workers leave first; of the others Kubernetes chooses."""
    now = {state.name: state.num_wanted for state in await scaler.pools()}
    if all(size >= now.get(pool, 0) for pool, size in request.sizes.items()):
        return await scale(scaler, request)
    if not router:
        say("whether workers of it are held is not known: no router is named (--grpc)")
        return await scale(scaler, request)
    link = dialer.operator(router)
    try:
        members = (await link.members(timeout_s=TIMEOUT_S)).members
    except SplitserveError as failure:
        return complained(failure, router)
    finally:
        await link.close()
    return await scale(scaler, request, [state for state in members if state.hold])


async def _scale_supervised(dialer: Dialer, address: str, request: ScaleRequest) -> ExitCode:
    scaler = SupervisedScaler(dialer, address)
    router = dialer.operator(address)
    try:
        members = list((await router.members(timeout_s=TIMEOUT_S)).members)
        before = await newest_event(router) if request.waits else 0
        code = await scale(scaler, request, members)
        if request.waits:
            await say_handed_on(router, before)
        return code
    finally:
        await router.close()
        await scaler.close()


async def scale(
    scaler: Scaler, request: ScaleRequest, members: Sequence[MemberState] = ()
) -> ExitCode:
    """All orders are judged before the first is given."""
    try:
        states = await scaler.pools()
        orders = _orders(states, request, members)
        judged = [await _judged(scaler, order, request, members) for order in orders]
        orders, plans = [each[0] for each in judged], [each[1] for each in judged]
        _show(plans, members, request.output)
        if request.is_dry_run:
            return ExitCode.OK
        if not (request.is_agreed or typer.confirm("go on?", err=True)):
            return ExitCode.FAILED
        for number, order in enumerate(orders):
            with _told_what_is_done(plans, number, request):
                await scaler.scale(replace(order, skips_room=True))
    except ScaleRefused as refusal:
        is_for_nodes = refusal.reason is RefusalReason.GPUS and request.release
        remedy = _WAITING if is_for_nodes else ""
        complain(f"refused ({refusal.reason}): {refusal.message}", remedy=remedy)
        return ExitCode.REFUSED
    except _DoneInPart as failure:
        complain(str(failure), remedy=failure.remedy)
        return ExitCode.FAILED
    except NotSettled as failure:
        complain(str(failure), remedy="see `splitserve status`")
        return ExitCode.FAILED
    if not request.waits:
        return ExitCode.OK
    limit_s = start_limit_of(states) if request.deadline_s is None else request.deadline_s
    return await _wait(scaler, request, Deadline.after(limit_s))


async def _judged(
    scaler: Scaler, order: ScaleOrder, request: ScaleRequest, members: Sequence[MemberState]
) -> tuple[ScaleOrder, ScalePlan]:
    """The order that may be given. Where a held pod cannot be named, Kubernetes chooses, as long as
    one that is not held stays in any case. Raises ScaleRefused."""
    try:
        return order, await scaler.scale(replace(order, is_dry_run=True))
    except ScaleRefused as refusal:
        is_about_its_name = refusal.reason is not RefusalReason.DISRUPTION
        if not (request.release and order.leaving and is_about_its_name):
            raise
        num_held = sum(pool_name(state.member) == order.pool for state in members)
        if order.size <= num_held:
            raise ScaleRefused(
                refusal.reason,
                f"{', '.join(order.leaving)} of {order.pool} is held and cannot be named to leave "
                f"({refusal.message}): Kubernetes might end the others and leave only held ones; "
                f"`splitserve uncordon {order.leaving[0]}` first",
            ) from refusal
    order = replace(order, leaving=())
    return order, await scaler.scale(replace(order, is_dry_run=True))


@contextmanager
def _told_what_is_done(
    plans: Sequence[ScalePlan], number: int, request: ScaleRequest
) -> Iterator[None]:
    """Raises _DoneInPart where the order of that number fails after others were begun. Of the first
    one that nobody answers it is told how pools may be, and of what stops this command; both go
    on."""
    try:
        yield
    except (ScaleRefused, NotSettled, SplitserveError, asyncio.CancelledError) as failure:
        is_refused = isinstance(failure, ScaleRefused)
        if not number and (is_refused or _says_itself(failure)):
            raise
        what = _how_pools_are(plans, number, is_refused=is_refused)
        left = [plan.pool for plan in plans[number:]]
        onward = request.command([f"{pool}={request.sizes[pool]}" for pool in left])
        touched = plans[: number if is_refused else number + 1]
        back = request.command([f"{plan.pool}={plan.size_before}" for plan in touched])
        remedy = f"{onward}, to go on, or {back}, to take it back"
        if not number or isinstance(failure, asyncio.CancelledError):
            complain(what, remedy=remedy)
            raise
        cause = failure.message if hasattr(failure, "message") else str(failure)
        raise _DoneInPart(f"{what}: {plans[number].pool} ({cause})", remedy) from failure


def _says_itself(failure: BaseException) -> bool:
    """Its pool has its new size, and not as was asked."""
    return isinstance(failure, NotSettled) and not isinstance(failure, OrderUnanswered)


def _how_pools_are(plans: Sequence[ScalePlan], number: int, *, is_refused: bool) -> str:
    """After the order of that number has failed; one that is no refusal may have begun."""
    sizes = [f"{plan.pool} from {plan.size_before} to {plan.size}" for plan in plans]
    parts = [f"begun: {', '.join(sizes[:number])}"] if number else []
    if not is_refused:
        parts.append(f"{sizes[number]} may have begun")
    left = plans[number if is_refused else number + 1 :]
    if left:
        parts.append(f"{', '.join(plan.pool for plan in left)} not")
    return "; ".join(parts)


def _orders(
    states: Sequence[PoolState], request: ScaleRequest, members: Sequence[MemberState]
) -> list[ScaleOrder]:
    now = {state.name: state.num_wanted for state in states}
    return [
        ScaleOrder(
            pool=pool,
            size=size,
            leaving=tuple(least_to_lose(members, pool, now.get(pool, 0) - size)),
            beside=tuple(each for each in request.sizes.items() if each[0] != pool),
            may_wait=request.may_wait,
        )
        for pool, size in request.sizes.items()
    ]


async def _wait(scaler: Scaler, request: ScaleRequest, deadline: Deadline) -> ExitCode:
    try:
        await wait_until_ready(scaler, request.sizes, deadline, asyncio.sleep)
    except NotSettled as failure:
        complain(str(failure), remedy="see `splitserve status` and the worker's log")
        return ExitCode.FAILED
    except ScaleRefused as refusal:
        complain(f"begun, and not seen to its end ({refusal.reason}): {refusal.message}")
        return ExitCode.FAILED
    except WorkerLost:
        complain("begun, and not seen to its end")
        raise
    say("ready")
    return ExitCode.OK


def _show(plans: Sequence[ScalePlan], members: Sequence[MemberState], output: str) -> None:
    if print_data(plans, output):
        return
    table = Table("POOL", "NOW", "THEN", "GPUS", "STARTING", "LEAVING")
    for plan in plans:
        sizes = (str(plan.size_before), str(plan.size), str(plan.num_gpus))
        table.add(
            plan.pool, *sizes, ", ".join(plan.starting) or "-", ", ".join(plan.leaving) or "-"
        )
    table.print()
    for line in dict.fromkeys(line for plan in plans for line in plan.unjudged):
        say(f"not known: {line}")
    for plan in plans:
        for line in losses(members, plan):
            say(line)
