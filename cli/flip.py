"""`splitserve flip`: a worker gives its place to one of the other role, which takes over its cache.

    side by side   a new worker starts in the other pool, ready
                   -> it takes over what the old one has cached -> the old one drains, and goes;
                   what the new one has by then goes to nobody else
    one by one     where there is no room for both, or as was asked: the old one hands on to others,
                   drains and goes
                   -> the new one starts

A role belongs to a process, so that the worker's name changes with it. A spare worker of the other
pool takes the place at once, where there is one. Both pools are judged before anything is done; an
API server judges neither GPUs nor quotas, so that it shows when the new worker does not get ready:
its pool then gets its old size again.

exit code 0 done, 1 not agreed to, or not done in time, 3 nobody answers, 4 refused, 130 after
Ctrl-C, 143 after SIGTERM, 129 after SIGHUP: what is half done is told, with the command that mends
it
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import typer

from cli.exit_code import ExitCode
from cli.flip_plan import FlipPlan, FlipRequest, planned, show
from cli.half_done import ends_as_by_ctrl_c
from cli.handed_on import hand_on, newest_event, say_handed_on
from cli.question import complained
from cli.release import at_release
from cli.terminal import complain, say
from cluster.deadline import Deadline, Sleep
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import SplitserveError
from cluster.join_token import operators_token
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.scaler import (
    NotSettled,
    OrderUnanswered,
    ScaleOrder,
    ScalePlan,
    Scaler,
    ScaleRefused,
    wait_until_ready,
)
from cluster.scaling.supervised import TIMEOUT_S, SupervisedScaler

HandOn = Callable[[Sequence[str]], Awaitable[bool]]
"""Called when these new workers are ready; whether they have what the old one had cached, of which
nothing more is handed on then."""
JOIN_S = 5.0
"""A worker that is ready joins its router by then: it does so every second."""
_LOOK_S = 0.2
_UNANSWERED = (SplitserveError, OrderUnanswered, asyncio.CancelledError)
"""It may have begun; a refusal says that it has not."""
_HALF_DONE = (ScaleRefused, NotSettled, *_UNANSWERED)


class _NotGrown(NotSettled):
    """The new worker did not get ready, and its pool is as large as before."""


def run_flip(address: str, request: FlipRequest) -> ExitCode:
    """See the head of the file. `address`: the router's."""
    try:
        return asyncio.run(_flip_supervised(GrpcDialer(operators_token()), address, request))
    except SplitserveError as failure:
        return complained(failure, address)


def flip_in_release(named: str, request: FlipRequest) -> ExitCode:
    """The same on Kubernetes, [NAMESPACE/]RELEASE: the pod is the one that its Deployment loses
    first, and hands on what it has cached as it ends, where the chart lets it."""

    async def nothing_more(starting: Sequence[str]) -> bool:
        """The pod itself does it."""
        return False

    request = replace(request, release=named)
    return at_release(
        named, lambda api, release: flip(KubernetesScaler(api, release), request, nothing_more)
    )


async def _flip_supervised(dialer: Dialer, address: str, request: FlipRequest) -> ExitCode:
    scaler, router = SupervisedScaler(dialer, address), dialer.operator(address)

    roles: dict[str, str] = {}
    is_handed_on = False

    async def to_new_ones(starting: Sequence[str]) -> bool:
        nonlocal is_handed_on
        joined = await _joined_since(router, roles)
        is_handed_on = await hand_on(router, request.worker_id, joined or starting)
        return is_handed_on

    try:
        roles |= await _roles(router)
        before = None if request.is_dry_run else await newest_event(router)
        code = await flip(scaler, request, to_new_ones, roles=roles)
        if before is not None and not is_handed_on:
            await say_handed_on(router, before)  # by its supervisor, as it left
        return code
    finally:
        await router.close()
        await scaler.close()


async def _roles(router: OperatorLink) -> dict[str, str]:
    """Of all workers that have joined, by id."""
    members = (await router.members(timeout_s=TIMEOUT_S)).members
    return {state.member.worker_id: state.member.role for state in members}


async def _joined_since(
    router: OperatorLink, before: Mapping[str, str], sleep: Sleep = asyncio.sleep
) -> list[str]:
    """Where a spare takes the place it is not the one that is started."""
    deadline = Deadline.after(JOIN_S)
    while not (new := sorted((await _roles(router)).keys() - before.keys())):
        if deadline.has_passed:
            break
        await sleep(_LOOK_S)
    return new


async def flip(
    scaler: Scaler,
    request: FlipRequest,
    hand_on_to: HandOn,
    *,
    roles: Mapping[str, str] | None = None,
) -> ExitCode:
    """`roles`: of all workers by id; None: pools know which are theirs."""
    try:
        plan = await planned(scaler, request, roles)
        show(plan, request)
        if request.is_dry_run:
            return ExitCode.OK
        if not (request.is_agreed or typer.confirm("go on?", err=True)):
            return ExitCode.FAILED
        with ends_as_by_ctrl_c():
            await _carry_out(scaler, plan, request, hand_on_to)
    except ScaleRefused as refusal:
        complain(f"refused ({refusal.reason}): {refusal.message}")
        return ExitCode.REFUSED
    except _NotGrown as failure:
        again = request.command(f"flip {request.worker_id} {request.place} --one-by-one")
        complain(str(failure), remedy=f"{again}, where there is no room for both at once")
        return ExitCode.FAILED
    except NotSettled as failure:
        complain(str(failure), remedy="see `splitserve status` and the worker's log")
        return ExitCode.FAILED
    say(f"{request.worker_id} gave its place to a {plan.growing.pool} worker")
    return ExitCode.OK


async def _carry_out(
    scaler: Scaler, plan: FlipPlan, request: FlipRequest, hand_on_to: HandOn
) -> None:
    """Raises ScaleRefused and NotSettled: what was done by then stays, and is said."""
    deadline = Deadline.after(plan.limit_s)
    grow = ScaleOrder(pool=plan.growing.pool, size=plan.growing.size)
    shrink = ScaleOrder(
        pool=plan.shrinking.pool, size=plan.shrinking.size, leaving=(plan.worker_id,)
    )
    if not plan.is_side_by_side:
        with _told(
            f"{plan.worker_id} goes, or has gone, and no {grow.pool} worker is ready in its place",
            request.command(f"scale {grow.pool}={grow.size}"),
            of=_UNANSWERED,
        ):
            await _reach(scaler, shrink, deadline)
        say(f"{plan.worker_id} has gone")
        with _told(
            f"{plan.worker_id} has gone, and no {grow.pool} worker is ready in its place",
            request.command(f"scale {grow.pool}={grow.size}"),
        ):
            await _reach(scaler, replace(grow, skips_room=True), deadline)
        return
    starting = await _grown(scaler, plan, request, deadline)
    say(f"{', '.join(starting.starting) or plan.growing.pool} is ready")
    with _told(
        f"{grow.pool} has a worker more than before, and {plan.worker_id} may have stayed",
        request.command(f"scale {grow.pool}={plan.growing.size_before}"),
    ):
        is_handed_on = await hand_on_to(starting.starting)
        shrink = replace(shrink, is_handed_on=is_handed_on)
        await scaler.scale(shrink)
    if request.waits:
        await _settled(scaler, shrink, deadline)


async def _grown(
    scaler: Scaler, plan: FlipPlan, request: FlipRequest, deadline: Deadline
) -> ScalePlan:
    """One worker more, ready. Raises NotSettled, ScaleRefused and SplitserveError."""
    order = ScaleOrder(pool=plan.growing.pool, size=plan.growing.size)
    before = plan.growing.size_before
    words = (
        f"{order.pool} may keep a worker more than before, which takes the next room that is free",
        request.command(f"scale {order.pool}={before}"),
    )
    with _told(*words, of=_UNANSWERED):
        begun = await scaler.scale(order)
    with _told(*words):
        try:
            await _settled(scaler, order, deadline)
            return begun
        except NotSettled as cause:
            failure = _NotGrown(str(cause))
        try:
            await _give_back(scaler, replace(order, size=before, leaving=begun.starting))
        except ScaleRefused as refusal:
            raise NotSettled(f"{failure}; and not taken back: {refusal.message}") from refusal
        except _UNANSWERED:
            say(f"{failure}; whether that is taken back is not known")
            raise
    say(f"{order.pool} is to have {before} again, as before; {plan.worker_id} stays")
    raise failure


async def _give_back(scaler: Scaler, order: ScaleOrder) -> None:
    """Unless somebody was faster."""
    wanted = {state.name: state.num_wanted for state in await scaler.pools()}
    if wanted.get(order.pool, 0) > order.size:
        await scaler.scale(order)


@contextmanager
def _told(
    what: str, remedy: str, *, of: tuple[type[BaseException], ...] = _HALF_DONE
) -> Iterator[None]:
    """How pools are if this fails, or is interrupted, and the command that mends it."""
    try:
        yield
    except of:
        complain(what, remedy=remedy)
        raise


async def _reach(scaler: Scaler, order: ScaleOrder, deadline: Deadline) -> None:
    await scaler.scale(order)
    await _settled(scaler, order, deadline)


async def _settled(scaler: Scaler, order: ScaleOrder, deadline: Deadline) -> None:
    await wait_until_ready(scaler, {order.pool: order.size}, deadline, asyncio.sleep)
