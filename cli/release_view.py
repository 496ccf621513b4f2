"""What an operator sees of a release that is served: its pools' news in lines."""

from __future__ import annotations

import time

from cli.progress_view import ProgressView
from cli.terminal import complain
from cluster.supervisor.release.news import (
    PodGone,
    PodLoads,
    PodRestarted,
    PodServes,
    PoolSized,
    PoolStands,
    ReleaseNews,
    ReleaseRemark,
)


class ReleaseView:
    """A watcher of release pools."""

    def __init__(self, release: str) -> None:
        """`release`: [NAMESPACE/]RELEASE, as it was named."""
        self._release = release
        self._rows = ProgressView()
        self._rows.start()
        self._began_s = time.monotonic()
        self._pools: dict[str, str] = {}
        self._waiting: set[str] = set()
        """Pods that have a row."""

    def __call__(self, piece: ReleaseNews) -> None:
        match piece:
            case PoolSized(pool, before, size):
                self._rows.say(f"{pool:<12} {before} -> {size}")
            case PoolStands(state):
                self._stands(state.name, f"{state.num_ready} of {state.num_wanted} ready")
            case PodLoads(name, phase):
                self._waiting.add(name)
                self._rows.update(name, phase, None)
            case PodServes(name, node):
                self._waiting.discard(name)
                self._rows.finish(name, f"{name:<12} ready{f' on {node}' if node else ''}")
            case PodRestarted(name, how):
                self._rows.say(f"{name} ended, {how}; its node starts it again")
            case PodGone(name):
                self._gone(name)
            case ReleaseRemark(text, remedy):
                if remedy:
                    complain(text, remedy=remedy)
                else:
                    self._rows.say(text)

    def all_ready(self, leaves: dict[str, int]) -> None:
        """The summary: what to try, and to which size each pool in `leaves` goes back."""
        at = f"--kubernetes {self._release}"
        name, namespace = self._release.rpartition("/")[2], self._release.rpartition("/")[0]
        where = f" --namespace {namespace}" if namespace else ""
        back = ", ".join(f"{pool} to {size}" for pool, size in leaves.items())
        end = f"puts back {back}" if back else "leaves all pools as they are"
        for line in (
            f"ready in {time.monotonic() - self._began_s:.1f} s: release {self._release}",
            f"  try   kubectl port-forward{where} service/{name} 8000 & splitserve chat",
            f"        splitserve rollout status {at}",
            f"        splitserve scale POOL=N {at}",
            f"  end   Ctrl-C {end}",
        ):
            self._rows.say(line)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        self._rows.close()

    def _stands(self, pool: str, words: str) -> None:
        if self._pools.get(pool) != words:
            self._pools[pool] = words
            self._rows.say(f"{pool:<12} {words}")

    def _gone(self, name: str) -> None:
        if name in self._waiting:
            self._waiting.discard(name)
            self._rows.finish(name, f"{name:<12} is gone")
        else:
            self._rows.say(f"{name:<12} is gone")
