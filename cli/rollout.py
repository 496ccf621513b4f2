"""`splitserve rollout`: rolling updates of a release's pools.

exit code of `status` 0 all is rolled out, 1 something is in its way, or on its way yet; of the
others 0 done, 1 given up or done in part, 4 refused; of all 3 nobody answers, or knows who asks
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import typer

from cli.exit_code import ExitCode
from cli.json_output import print_data
from cli.question import CLEAR
from cli.release import at_release
from cli.table import Table
from cli.terminal import complain, say
from cluster.deadline import Clock, Sleep
from cluster.errors import WorkerLost
from cluster.scaling.kubernetes_api import DeploymentsApi
from cluster.scaling.login_patience import LoginPatience
from cluster.scaling.rollout import (
    PlannedChange,
    RolloutChange,
    RolloutDeed,
    Rollouts,
    RolloutState,
    skew_of,
)
from cluster.scaling.scaler import ScaleRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRequest:
    """The words of a command that changes something."""

    deed: RolloutDeed
    pool: str | None = None
    """None: all."""
    is_dry_run: bool = False
    is_agreed: bool = False
    output: str = "table"


def show_rollout(
    named: str,
    pool: str | None,
    *,
    output: str,
    every_s: float | None = None,
    sleep: Sleep = asyncio.sleep,
    clock: Clock = time.monotonic,
) -> ExitCode:
    """OK when all is rolled out, FAILED when something is in its way, or is on its way yet.
    `every_s`: again after so many seconds, until one of the first two, or UNREACHABLE where the
    login has ended and nobody logs in again; None: once."""

    async def work(api: DeploymentsApi, release: str) -> ExitCode:
        rollouts = Rollouts(api, release)
        states = await rollouts.status(pool)
        _show_states(states, output)
        patience, said = LoginPatience(clock), ""
        while every_s is not None and not _is_over(states):
            await sleep(every_s)
            try:
                states = await rollouts.status(pool)
            except WorkerLost as failure:  # it may come back
                patience.failed(failure)
                if failure.message != said:
                    say(said := failure.message)
                continue
            patience.answered()
            said = ""
            if sys.stdout.isatty():
                print(CLEAR, end="")
            _show_states(states, output)
        return ExitCode.OK if all(state.is_done for state in states) else ExitCode.FAILED

    return at_release(named, work)


def change_rollout(named: str, request: RolloutRequest) -> ExitCode:
    """Said, asked, done."""

    async def work(api: DeploymentsApi, release: str) -> ExitCode:
        rollouts = Rollouts(api, release)
        plans = await rollouts.planned(request.deed, request.pool)
        for plan in plans:
            await rollouts.carry_out(plan, is_dry_run=True)
        _show_changes([plan.change for plan in plans], request.output)
        if request.is_dry_run:
            return ExitCode.OK
        if not (request.is_agreed or typer.confirm("go on?", err=True)):
            return ExitCode.FAILED
        return await _carried_out(rollouts, plans)

    return at_release(named, work)


async def _carried_out(rollouts: Rollouts, plans: Sequence[PlannedChange]) -> ExitCode:
    """Raises what the first one does."""
    done: list[str] = []
    for plan in plans:
        try:
            await rollouts.carry_out(plan)
        except (ScaleRefused, WorkerLost) as failure:
            words = _how_pools_are(plans, done, failure)
            if done:
                complain(f"{words}: {failure.message}", remedy=_LOOK_AT)
                return ExitCode.FAILED
            if isinstance(failure, WorkerLost):
                complain(words, remedy=_LOOK_AT)
            raise
        done.append(plan.change.pool)
    deed = plans[0].change.deed
    say(f"{', '.join(done)}: {_DONE[deed]}")
    return ExitCode.OK


def _how_pools_are(
    plans: Sequence[PlannedChange], done: Sequence[str], failure: ScaleRefused | WorkerLost
) -> str:
    """After the first of the others has failed; one that is no refusal may have been done."""
    failed, *left = [plan.change.pool for plan in plans[len(done) :]]
    deed = _DONE[plans[0].change.deed]
    parts = [f"{', '.join(done)}: done"] if done else []
    parts += [f"{', '.join(left)} not tried"] if left else []
    is_refused = isinstance(failure, ScaleRefused)
    parts.append(f"{failed} not" if is_refused else f"{failed} may be {deed}: nobody has said so")
    return "; ".join(parts)


_LOOK_AT = "see `splitserve rollout status`"
_DONE = {
    RolloutDeed.PAUSE: "on hold",
    RolloutDeed.RESUME: "goes on",
    RolloutDeed.UNDO: "back to the revision before, one by one",
}


def _is_over(states: Sequence[RolloutState]) -> bool:
    """Nothing will change any more, or not by itself."""
    return all(state.is_done for state in states) or any(state.problem for state in states)


def _show_states(states: Sequence[RolloutState], output: str) -> None:
    data = {"skew": skew_of(states), "pools": [asdict(state) for state in states]}
    if print_data(data, output):
        return
    table = Table("POOL", "REVISION", "WANTED", "UPDATED", "READY", "OLD", "WAITING", "STATE")
    for state in states:
        numbers = (state.num_wanted, state.num_updated, state.num_ready, state.num_old)
        waiting = "-" if state.num_waiting is None else str(state.num_waiting)
        table.add(state.pool, str(state.revision), *map(str, numbers), waiting, _word(state))
    table.print()
    if any(state.num_waiting for state in states):
        say("some are loaded and not ready yet; splitserve status says what they wait for")
    if skew := skew_of(states):
        say(f"pools are {skew:.0%} apart: workers of two pairings do not hand requests over")


def _show_changes(changes: Sequence[RolloutChange], output: str) -> None:
    if print_data(changes, output):
        return
    table = Table("POOL", "REVISION", "STATE", "THEN")
    for each in changes:
        state = "on hold" if each.is_paused else "not held"
        table.add(each.pool, str(each.revision), state, _then(each))
    table.print()
    for each in changes:
        for difference in each.differences:
            say(f"{each.pool}: {difference}")
        if each.deed is RolloutDeed.UNDO and each.is_paused:
            say(f"{each.pool} is on hold: its pods change after `splitserve rollout resume`")


def _then(change: RolloutChange) -> str:
    if change.is_idle:
        return "as it is"
    if change.deed is RolloutDeed.UNDO:
        return f"the template of revision {change.revision_after}"
    return _DONE[change.deed]


def _word(state: RolloutState) -> str:
    if state.problem:
        return state.problem
    if state.is_paused:
        return "on hold"
    return "done" if state.is_done else "rolling"
