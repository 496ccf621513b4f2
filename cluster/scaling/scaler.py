"""What an operator may ask of whoever starts and ends the workers of a fleet.

    pools()        present, wanted and ready of each pool
    scale(order)   checked whole, then begun; `wait_until_ready` sees the end of it

A supervisor does it for a fleet on this machine or on Ray, an API server for one on Kubernetes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.deadline import Deadline, Sleep
from cluster.errors import WorkerLost

POLL_INTERVAL_S = 1.0
"""Between two looks at pools that are not ready yet."""
USUAL_START_S = 600.0
"""In which new workers are to be ready, where nobody says otherwise."""


class RefusalReason(enum.StrEnum):
    """Why a pool is left as it is; scripts read these words."""

    NO_SUCH_POOL = "no_such_pool"
    BELOW_ONE = "below_one"
    GPUS = "gpus"
    ROOM = "room"
    LIMITS = "limits"
    QUOTA = "quota"
    DISRUPTION = "disruption"
    NO_SUCH_WORKER = "no_such_worker"
    CHANGING = "changing"
    FORBIDDEN = "forbidden"
    OPTIONS = "options"
    UNSUPERVISED = "unsupervised"


class ScaleRefused(Exception):
    """Nothing was changed."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A pool now. Spare workers are not counted."""

    name: str
    num_wanted: int
    num_present: int
    """Processes or pods, whatever they do."""
    num_ready: int
    """Those that take requests."""
    generation: int
    """Grows with every change of what is wanted."""
    problem: str = ""
    """Why the last change was not reached, if it was not."""
    role: str = ""
    """Of its workers; empty: its name is their role."""
    workers_begin: str = ""
    """With what the names of its workers begin; empty: names say nothing."""
    start_limit_s: float | None = None
    """In which what is wanted is to be reached, by whoever made the pool; None: it is not said."""

    @property
    def is_settled(self) -> bool:
        """It is what is wanted."""
        return self.num_wanted == self.num_present == self.num_ready


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOrder:
    """One pool's new size."""

    pool: str
    size: int
    leaving: tuple[str, ...] = ()
    """Workers that are to go first where the pool gets smaller; whoever is asked chooses others."""
    is_handed_on: bool = False
    """Others have what these workers cached: it is not handed on again as they leave."""
    is_dry_run: bool = False
    """Judged, and not done."""
    by: str = ""
    """Who orders it, in words for events; empty: an operator."""
    beside: tuple[tuple[str, int], ...] = ()
    """Sizes of other pools that are ordered with it: where there is room for each alone there may
    be none for all. Looked at on Kubernetes."""
    may_wait: bool = False
    """For nodes that are not there yet, as a cluster's autoscaler brings them. On Kubernetes."""
    skips_room: bool = False
    """Room is not looked for: it was judged with others a moment ago, of which one may have begun
    to leave, or it takes the room of one that leaves. On Kubernetes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePlan:
    """What an order does."""

    pool: str
    size_before: int
    size: int
    starting: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    num_gpus: int = 0
    """That the new workers take."""
    unjudged: tuple[str, ...] = ()
    """What might stand in its way and may not be looked at, with the reason."""


class Scaler(Protocol):
    """From one event loop."""

    async def pools(self) -> Sequence[PoolState]:
        """All of the fleet's. Raises SplitserveError where nobody answers."""

    async def scale(self, order: ScaleOrder) -> ScalePlan:
        """Begins it; workers that leave end their requests first, or hand them on. Raises
        ScaleRefused where it may not be, and OrderUnanswered or SplitserveError where nobody
        answers: it may then have begun."""

    async def close(self) -> None:
        """Idempotent."""


class NotSettled(Exception):
    """The deadline has passed, or a pool cannot get what is wanted."""


class OrderUnanswered(NotSettled):
    """An order was taken, and nobody has said what came of it: it may have begun."""


def start_limit_of(states: Sequence[PoolState]) -> float:
    """Seconds for what waits for pools of a fleet: the slowest pool's, since it may wait for it."""
    said = [state.start_limit_s for state in states if state.start_limit_s is not None]
    return max(said, default=USUAL_START_S)


async def wait_until_ready(
    scaler: Scaler, sizes: Mapping[str, int], deadline: Deadline, sleep: Sleep
) -> None:
    """Returns once these pools have these sizes, all ready. Raises NotSettled, with the reason, and
    WorkerLost where nobody answers when the time is over: until then it may be a restart."""
    while True:
        try:
            states = {state.name: state for state in await scaler.pools()}
        except WorkerLost:
            if deadline.has_passed:
                raise
            await sleep(min(POLL_INTERVAL_S, deadline.remaining_s))
            continue
        left = [name for name, size in sizes.items() if not _has(states.get(name), size)]
        if not left:
            return
        for state in (states[name] for name in left if name in states):
            if state.problem:
                raise NotSettled(f"{state.name}: {state.problem}")
        if deadline.has_passed:
            raise NotSettled(f"not ready in time: {', '.join(map(_words, states.values()))}")
        await sleep(min(POLL_INTERVAL_S, deadline.remaining_s))


def check_order(order: ScaleOrder, names: Sequence[str]) -> None:
    """What holds everywhere. Raises ScaleRefused."""
    if order.pool not in names:
        raise ScaleRefused(
            RefusalReason.NO_SUCH_POOL,
            f"there is no pool {order.pool}; this fleet has {', '.join(sorted(names)) or 'none'}",
        )
    if order.size < 1:
        raise ScaleRefused(
            RefusalReason.BELOW_ONE,
            f"{order.pool}={order.size}: a pool keeps at least one worker",
        )


def _has(state: PoolState | None, size: int) -> bool:
    return state is not None and state.num_wanted == size and state.is_settled


def _words(state: PoolState) -> str:
    return f"{state.name} {state.num_ready} of {state.num_wanted}"
