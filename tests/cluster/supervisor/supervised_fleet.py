"""Workers and a router that a supervisor speaks to, played by a test."""

from __future__ import annotations

import asyncio
from collections import Counter

from cluster.config import ServeOptions
from cluster.dial.dialer import Dialer, SupervisorLink, WorkerAdminLink
from cluster.errors import Draining, WorkerLost
from cluster.supervisor.failure import ProcessFailure
from cluster.supervisor.news import News, Promoted, Restarting, Retiring, Serving
from cluster.supervisor.pool import pool_sizes
from cluster.supervisor.reserve import Reserve
from protos import membership_pb2


class PlayedEnds(Dialer):
    """Every worker lets itself be promoted, unless it is among `refusing`; each answers when
    `may_answer` is set. The router takes reports while it `is_there`."""

    def __init__(self) -> None:
        self.promoted: list[str] = []
        self.refusing: set[str] = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.reports: list[membership_pb2.SupervisorReport] = []
        self.orders: list[membership_pb2.ScaleOrder] = []
        self.is_there = True
        self.num_links = self.num_closed = 0

    def supervisor(self, address: str) -> SupervisorLink:
        self.num_links += 1
        return PlayedRouterLink(self)

    def worker_admin(self, address: str) -> WorkerAdminLink:
        self.num_links += 1
        return PlayedWorkerLink(self, address)


class PlayedWorkerLink(WorkerAdminLink):
    """To whoever has that address."""

    def __init__(self, ends: PlayedEnds, address: str) -> None:
        self._ends = ends
        self._address = address

    async def promote(self, *, timeout_s: float) -> None:
        await self._ends.may_answer.wait()
        if self._address in self._ends.refusing:
            raise Draining("this worker ends")
        self._ends.promoted.append(self._address)

    async def close(self) -> None:
        self._ends.num_closed += 1


class PlayedRouterLink(SupervisorLink):
    """To the router, at whatever address."""

    def __init__(self, ends: PlayedEnds) -> None:
        self._ends = ends

    async def report(
        self, report: membership_pb2.SupervisorReport, *, timeout_s: float
    ) -> membership_pb2.SupervisorReportTaken:
        if not self._ends.is_there:
            raise WorkerLost("connection refused")
        self._ends.reports.append(report)
        orders, self._ends.orders = self._ends.orders, []
        return membership_pb2.SupervisorReportTaken(orders=orders)

    async def close(self) -> None:
        self._ends.num_closed += 1


class PlayedFleet:
    """A reserve, and the news that a test makes. An address names the process: decode-0/1 is the
    first of that name."""

    def __init__(self, **options: int) -> None:
        self.ends = PlayedEnds()
        self.ended: list[str] = []
        self.told: list[News] = []
        self.pools = pool_sizes(ServeOptions(**options))  # type: ignore[arg-type]
        self.reserve = Reserve(self.pools, lambda: self.ends, self.end, self.told.append)
        self._starts: Counter[str] = Counter()

    def come(self, *names: str) -> None:
        for name in names:
            self._starts[name] += 1
            self.reserve(Serving(name, 100 * self._starts[name], self.address_of(name)))

    def address_of(self, name: str) -> str:
        return f"{name}/{self._starts[name]}"

    def leave(self, name: str) -> None:
        self.reserve(Retiring(name))

    def die(self, name: str) -> None:
        self.reserve(Restarting(failure_of(name), delay_s=0.5))

    def end(self, name: str, why: str) -> None:
        self.ended.append(self.address_of(name))

    @property
    def spares(self) -> list[str]:
        return [spare.address for spare in self.reserve.spares]

    @property
    def in_place(self) -> list[str]:
        return [piece.name for piece in self.told if isinstance(piece, Promoted)]


def failure_of(name: str, kind: str = "rank_lost") -> ProcessFailure:
    return ProcessFailure(name, "exit code 1", "rank_lost: rank 1 ended", kind=kind)
