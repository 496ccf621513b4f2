"""The pools of a release, from the moment that somebody serves it to the moment that he ends.

    start        judged -> sized -> ready
    until_lost   watched: a node starts what ends, a Deployment what is gone
    stop         each pool that was changed goes back to the size that it had

A pool that has been given another size meanwhile, by whomever, is left at that. Nothing here starts
a process: what a pod is says the chart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from cluster.deadline import Clock, Sleep
from cluster.errors import WorkerLost
from cluster.identity import Role
from cluster.process.background import until_one_ends
from cluster.scaling.kubernetes import (
    POOL_LABEL,
    KubernetesScaler,
    pool_of,
    pool_state,
    selector_of,
)
from cluster.scaling.kubernetes_api import DeploymentsApi
from cluster.scaling.login_patience import LoginPatience
from cluster.scaling.scaler import (
    POLL_INTERVAL_S,
    PoolState,
    RefusalReason,
    ScaleOrder,
    ScaleRefused,
)
from cluster.supervisor.child import StartFailed
from cluster.supervisor.failure import ProcessFailure
from cluster.supervisor.release.goals import PoolGoal, goals_of
from cluster.supervisor.release.news import (
    PoolSized,
    ReleaseLooks,
    ReleaseRemark,
    ReleaseWatcher,
)
from cluster.supervisor.release.pods import PodWord, pod_word
from cluster.supervisor.release.router import routers_of, why_no_router

_TRIES = 5
"""Of a patch that somebody's write came before: a status changes with every pod."""
T = TypeVar("T")


class ReleasePools:
    """Of one release. From one event loop; see ServedFleet in cli/serve_run.py."""

    def __init__(
        self,
        api: DeploymentsApi,
        release: str,
        said: Mapping[Role, int],
        watcher: ReleaseWatcher,
        *,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = time.monotonic,
    ) -> None:
        """`said`: sizes of the pools of these roles; see goals.py for the others."""
        self._api = api
        self._release = release
        self._said = said
        self._tell = watcher
        self._sleep = sleep
        self._patience = LoginPatience(clock)
        self._scaler = KubernetesScaler(api, release, sleep)
        self._looks = ReleaseLooks()
        self._changed: list[PoolGoal] = []
        self._is_started = asyncio.Event()
        self._is_killed = asyncio.Event()
        self._said_of: dict[str, str] = {}
        """What was remarked last, by what it is about: it is not said again every second."""

    @property
    def sizes_at_the_end(self) -> dict[str, int]:
        """Of the pools that were changed."""
        return {goal.pool: goal.size_before for goal in self._changed}

    async def start(self) -> None:
        """Returns when every pool takes requests, and a router does. Raises ScaleRefused and
        WorkerLost, with nothing done that `stop` does not undo, and StartFailed."""
        pools = await self._scaler.pools()
        if not pools:
            raise ScaleRefused(
                RefusalReason.NO_SUCH_POOL,
                f"the release {self._release} has no pools in this namespace: `helm list --all-"
                "namespaces` says where it is",
            )
        goals = goals_of(pools, self._said)
        changes = [goal for goal in goals if goal.is_a_change]
        sizes = tuple((goal.pool, goal.size) for goal in changes)
        orders = [ScaleOrder(pool=pool, size=size, beside=sizes) for pool, size in sizes]
        for order in orders:
            await _tried(partial(self._scaler.scale, replace(order, is_dry_run=True)))
        for goal, order in zip(changes, orders, strict=True):
            self._changed.append(goal)  # before: who does not answer may have done it
            await _tried(partial(self._scaler.scale, replace(order, skips_room=True)))
            self._tell(PoolSized(goal.pool, goal.size_before, goal.size))
        await self._until_ready(goals)
        self._is_started.set()

    async def until_lost(self) -> ProcessFailure:
        """When there is nothing left to watch, or it may not be watched any more."""
        await self._is_started.wait()
        while True:
            await self._sleep(POLL_INTERVAL_S)
            try:
                states = await self._look()
            except ScaleRefused as refusal:
                return self._failure("not watched any more", refusal.message)
            if states is not None and not states:
                return self._failure("gone", "it has no pools any more: it was uninstalled")

    async def stop(self) -> None:
        """What fails is said, with the command that does it."""
        for goal in self._changed:
            try:
                await _tried(partial(self._give_back, goal))
            except (ScaleRefused, WorkerLost) as failure:
                name = f"{self._release}-{goal.pool}"
                remedy = f"kubectl scale deployment/{name} --replicas={goal.size_before}"
                words = f"{goal.pool} may be left at {goal.size}: {failure.message}"
                self._tell(ReleaseRemark(words, remedy))
        await until_one_ends(self._is_killed.wait(), self._until_ended())

    def kill(self) -> None:
        """Pods that end go on ending, by themselves."""
        self._is_killed.set()

    async def _until_ready(self, goals: Sequence[PoolGoal]) -> None:
        while True:
            states = {state.name: state for state in await self._look() or ()}
            left = [goal for goal in goals if not _is_met(goal, states)]
            for goal in left:
                if problem := _problem(goal, states):
                    raise StartFailed(ProcessFailure(goal.pool, "not ready", problem, _LOOK_AT))
            if states and not left and not await self._lacks_router():
                return
            await self._sleep(POLL_INTERVAL_S)

    async def _lacks_router(self) -> bool:
        try:
            why = why_no_router(await self._api.pools(routers_of(self._release)))
        except WorkerLost as failure:
            why = failure.message
        self._remark("router", why)
        return bool(why)

    async def _look(self) -> Sequence[PoolState] | None:
        """None while nobody answers. Raises ScaleRefused, and in a start LoginLost: nobody may sit
        there yet."""
        try:
            states, pods = await self._scaler.pools(), await self._pods()
        except WorkerLost as failure:
            if not self._is_started.is_set():
                self._patience.failed(failure)
            self._remark("server", failure.message)
            return None
        self._patience.answered()
        self._remark("server", "")
        for piece in self._looks.after(states, pods):
            self._tell(piece)
        return states

    async def _pods(self) -> Sequence[PodWord] | None:
        """None where they may not be seen."""
        try:
            found = await self._api.pods_with(selector_of(self._release))
        except ScaleRefused as refusal:
            self._remark("pods", f"pods are not shown: {refusal.message}")
            return None
        return [pod_word(pod, str(pod["metadata"]["labels"][POOL_LABEL])) for pod in found]

    async def _give_back(self, goal: PoolGoal) -> None:
        found = {pool_of(item): item for item in await self._api.pools(selector_of(self._release))}
        pool = found.get(goal.pool)
        wanted = None if pool is None else pool_state(pool).num_wanted
        if pool is None or wanted == goal.size_before:
            return
        if wanted == goal.size:
            await self._api.patch_scale(pool, goal.size_before, is_dry_run=False)
            self._tell(PoolSized(goal.pool, goal.size, goal.size_before))
        else:
            words = f"{goal.pool} is left at {wanted}, which somebody else has given it"
            self._tell(ReleaseRemark(words))

    async def _until_ended(self) -> None:
        """Pods of the pools that got smaller again; as long as they are seen."""
        shrunk = {goal.pool for goal in self._changed if goal.size > goal.size_before}
        while shrunk:
            try:
                states, pods = await self._scaler.pools(), await self._pods()
            except (ScaleRefused, WorkerLost):
                return
            for piece in self._looks.after(states, pods):
                self._tell(piece)
            ending = {pod.pool for pod in pods or () if pod.is_ending}
            waited = {state.name for state in states if state.num_present > state.num_wanted}
            if not shrunk & (ending | waited):
                return
            await self._sleep(POLL_INTERVAL_S)

    def _remark(self, about: str, text: str) -> None:
        """Empty: there is nothing to say of it any more."""
        if text and self._said_of.get(about) != text:
            self._tell(ReleaseRemark(text))
        self._said_of[about] = text

    def _failure(self, how: str, cause: str) -> ProcessFailure:
        return ProcessFailure(f"release {self._release}", how, cause)


_LOOK_AT = "see `kubectl get pods`, and `kubectl describe` of one that is not ready"


def _is_met(goal: PoolGoal, states: Mapping[str, PoolState]) -> bool:
    return goal.pool in states and goal.is_met_by(states[goal.pool])


def _problem(goal: PoolGoal, states: Mapping[str, PoolState]) -> str:
    """Of a pool that is not to be changed it may be a rolling update's, which goes on."""
    if not states:
        return ""  # nobody has answered
    if goal.pool not in states:
        return "the pool is there no more"
    return states[goal.pool].problem if goal.is_a_change else ""


async def _tried(call: Callable[[], Awaitable[T]]) -> T:
    """Again where somebody else has written since it was read. Raises what the last one does."""
    for _ in range(_TRIES - 1):
        try:
            return await call()
        except ScaleRefused as refusal:
            if refusal.reason is not RefusalReason.CHANGING:
                raise
    return await call()
