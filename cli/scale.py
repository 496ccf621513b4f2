"""`splitserve scale`: what it would do, a question, and the doing.

exit code 0 done, 1 not ready in time or given up, 3 nobody answers, 4 refused
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
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
from cluster.errors import SplitserveError
from cluster.join_token import operators_token
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.pool_members import least_to_lose
from cluster.scaling.scaler import (
    NotSettled,
    ScaleOrder,
    ScalePlan,
    Scaler,
    ScaleRefused,
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
    deadline_s: float = 600.0
    output: str = "table"


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


def scale_release(named: str, request: ScaleRequest) -> ExitCode:
    """The same on Kubernetes: [NAMESPACE/]RELEASE."""
    return at_release(named, lambda api, release: scale(KubernetesScaler(api, release), request))


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
        orders = await _orders(scaler, request, members)
        plans = [await scaler.scale(replace(order, is_dry_run=True)) for order in orders]
        _show(plans, members, request.output)
        if request.is_dry_run:
            return ExitCode.OK
        if not (request.is_agreed or typer.confirm("go on?", err=True)):
            return ExitCode.FAILED
        for order in orders:
            await scaler.scale(order)
    except ScaleRefused as refusal:
        complain(f"refused ({refusal.reason}): {refusal.message}")
        return ExitCode.REFUSED
    return await _wait(scaler, request) if request.waits else ExitCode.OK


async def _orders(
    scaler: Scaler, request: ScaleRequest, members: Sequence[MemberState]
) -> list[ScaleOrder]:
    now = {state.name: state.num_wanted for state in await scaler.pools()}
    return [
        ScaleOrder(
            pool=pool,
            size=size,
            leaving=tuple(least_to_lose(members, pool, now.get(pool, 0) - size)),
        )
        for pool, size in request.sizes.items()
    ]


async def _wait(scaler: Scaler, request: ScaleRequest) -> ExitCode:
    deadline = Deadline.after(request.deadline_s)
    try:
        await wait_until_ready(scaler, request.sizes, deadline, asyncio.sleep)
    except NotSettled as failure:
        complain(str(failure), remedy="see `splitserve status` and the worker's log")
        return ExitCode.FAILED
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
    for plan in plans:
        for line in losses(members, plan):
            say(line)
