"""What is told of a release while it is served, and what two looks at it come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.scaling.scaler import PoolState
from cluster.supervisor.release.pods import PodWord


@dataclass(frozen=True, slots=True)
class PoolSized:
    """A pool is to have another size: it was said to the API server, and is not done yet."""

    pool: str
    size_before: int
    size: int


@dataclass(frozen=True, slots=True)
class PoolStands:
    """A pool has other numbers than at the last look."""

    state: PoolState


@dataclass(frozen=True, slots=True)
class PodLoads:
    """A pod that takes no requests yet, or none any more, is at another phase."""

    name: str
    phase: str


@dataclass(frozen=True, slots=True)
class PodServes:
    """A pod takes requests."""

    name: str
    node: str


@dataclass(frozen=True, slots=True)
class PodRestarted:
    """A container of it ended and is started again, by its node."""

    name: str
    how: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod is there no more."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseRemark:
    """What an operator should know; `remedy`: what helps, if anything does."""

    text: str
    remedy: str = ""


ReleaseNews = PoolSized | PoolStands | PodLoads | PodServes | PodRestarted | PodGone | ReleaseRemark
ReleaseWatcher = Callable[[ReleaseNews], None]


class ReleaseLooks:
    """The last look; each is compared with the one before."""

    def __init__(self) -> None:
        self._pools: dict[str, PoolState] = {}
        self._pods: dict[str, PodWord] = {}

    def after(
        self, pools: Sequence[PoolState], pods: Sequence[PodWord] | None
    ) -> list[ReleaseNews]:
        """What is new. `pods`: None where they may not be seen."""
        news: list[ReleaseNews] = [
            PoolStands(state) for state in pools if self._pools.get(state.name) != state
        ]
        self._pools = {state.name: state for state in pools}
        if pods is not None:
            before, self._pods = self._pods, {pod.name: pod for pod in pods}
            for pod in pods:
                news += _news_of(before.get(pod.name), pod)
            news += [PodGone(name) for name in before if name not in self._pods]
        return news


def _news_of(before: PodWord | None, now: PodWord) -> list[ReleaseNews]:
    news: list[ReleaseNews] = []
    if before is not None and now.num_restarts > before.num_restarts:
        news.append(PodRestarted(now.name, now.last_end or "how is not known"))
    serves = now.is_ready and not now.is_ending
    served = before is not None and before.is_ready and not before.is_ending
    if serves and not served:
        news.append(PodServes(now.name, now.node))
    elif not serves and (before is None or served or before.phase != now.phase):
        news.append(PodLoads(now.name, now.phase))
    return news
