"""`splitserve rollout`: rolling updates of a release's pools."""

from __future__ import annotations

from dataclasses import asdict

from cli.exit_code import ExitCode
from cli.json_output import print_data
from cli.release import at_release
from cli.table import Table
from cli.terminal import say
from cluster.scaling.kubernetes_api import DeploymentsApi
from cluster.scaling.rollout import Rollouts, RolloutState, skew_of


def show_rollout(named: str, pool: str | None, *, output: str) -> ExitCode:
    """OK when all is rolled out, FAILED when something is in its way, or is on its way yet."""

    async def work(api: DeploymentsApi, release: str) -> ExitCode:
        states = await Rollouts(api, release).status(pool)
        data = {"skew": skew_of(states), "pools": [asdict(state) for state in states]}
        if not print_data(data, output):
            _print(states)
        return ExitCode.OK if all(state.is_done for state in states) else ExitCode.FAILED

    return at_release(named, work)


def hold_rollout(named: str, pool: str | None, *, is_paused: bool) -> ExitCode:
    """Pauses or resumes."""

    async def work(api: DeploymentsApi, release: str) -> ExitCode:
        changed = await Rollouts(api, release).pause(pool, is_paused=is_paused)
        say(f"{', '.join(changed)}: {'on hold' if is_paused else 'goes on'}")
        return ExitCode.OK

    return at_release(named, work)


def undo_rollout(named: str, pool: str | None) -> ExitCode:
    """To the template before the last one."""

    async def work(api: DeploymentsApi, release: str) -> ExitCode:
        changed = await Rollouts(api, release).undo(pool)
        say(f"{', '.join(changed)}: back to the revision before, one by one")
        return ExitCode.OK

    return at_release(named, work)


def _print(states: list[RolloutState]) -> None:
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


def _word(state: RolloutState) -> str:
    if state.problem:
        return state.problem
    if state.is_paused:
        return "on hold"
    return "done" if state.is_done else "rolling"
