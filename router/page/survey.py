"""Takes the snapshot: looks at the router's own records, asks no worker, and changes nothing.

A large fleet is looked at in slices, between which the loop serves others; so what stands in one
snapshot may be some milliseconds apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import count
from typing import Protocol, TypeVar

from cluster import VERSION
from cluster.deadline import Clock
from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.process.loop_share import LoopShare
from router.dispatch.admission import Admission
from router.dispatch.degradation import Degradation
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.stage import RequestStage
from router.page.decision_rows import decision_row
from router.page.history import History
from router.page.snapshot import Blocks, LinkRow, PoolRow, QueueRow, Snapshot, WorkerRow
from router.pricing.estimates import Estimates
from router.pricing.link_rates import Link
from router.telemetry.decisions import Decision, DecisionLog
from router.telemetry.metrics import RouterMetrics
from router.tenants.priority import Priority

SLICE_WORKERS = 32
"""Each takes 4 us: 0.13 ms between two looks at the clock (2-core machine)."""
SLICE_REQUESTS = 1000
"""Each takes 0.2 us."""
MAX_WORKERS = 1000
MAX_LINKS = 96
MAX_QUEUES = 24
MAX_DECISIONS = 12
MAX_OVER = 9
"""Of these: where so many have come to something, the others are the newest that run."""
SEARCHED_DECISIONS = 256

Some = TypeVar("Some")


class PageSources(Protocol):
    """What the page is about: FleetPlane."""

    fleet: Fleet
    admission: Admission
    estimates: Estimates
    decisions: DecisionLog
    metrics: RouterMetrics
    degradation: Degradation

    def why_not_ready(self) -> str | None:
        """None when a request could be served; else what is missing."""
        ...


@dataclass(frozen=True, slots=True)
class PageSurroundings:
    """What is known of the router beside its fleet."""

    model: str
    is_draining: Callable[[], bool]
    clock: Clock
    share: LoopShare


@dataclass(slots=True)
class _Seen:
    """Of requests at workers."""

    stages: Counter[RequestStage]
    links: Counter[tuple[Link, RequestStage]]


class Survey:
    """Of one router. From the event loop, one at a time."""

    def __init__(self, sources: PageSources, around: PageSurroundings, history: History) -> None:
        self._of = sources
        self._around = around
        self._history = history
        self._numbers = count(1)
        self._began_s = around.clock()

    async def take(self) -> Snapshot:
        """Everything as it is now; a slice at a time."""
        members = self._of.fleet.members
        workers = [self._worker(i) async for i in self._sliced(members, SLICE_WORKERS)]
        seen = await self._seen(members)
        links = self._links(seen)
        queue = self._queue()
        recent = telling(self._of.decisions.newest(SEARCHED_DECISIONS))
        return Snapshot(
            seq=next(self._numbers),
            model=self._around.model,
            version=VERSION,
            uptime_s=round(self._around.clock() - self._began_s, 1),
            problem=self._of.why_not_ready() or "",
            draining=self._around.is_draining(),
            given_up=self._of.degradation.in_words,
            stages=self._stages(seen),
            pools=[_pool(role, workers) for role in Role],
            workers=workers[:MAX_WORKERS],
            num_workers=len(workers),
            links=nlargest(MAX_LINKS, links, key=_importance),
            num_links=len(links),
            queue=nlargest(MAX_QUEUES, queue, key=lambda row: row.waiting),
            num_queues=len(queue),
            decisions=[decision_row(each) for each in recent],
            series=self._history.series(),
        )

    async def _sliced(self, items: Sequence[Some], size: int) -> AsyncIterator[Some]:
        for at, item in enumerate(items):
            if at % size == 0:
                await self._around.share.breathe()
            yield item

    def _worker(self, item: FleetMember) -> WorkerRow:
        load = item.load
        return WorkerRow(
            id=item.key.worker_id,
            role=item.member.role.value,
            state=self._of.fleet.state_of(item),
            running=load.num_running,
            waiting=load.num_waiting,
            in_flight=item.num_in_flight,
            blocks=_blocks(load),
            step_ms=round(load.decode_step_ms, 2),
            prefill_tokens_per_s=round(load.prefill_tokens_per_s, 1),
        )

    async def _seen(self, members: Sequence[FleetMember]) -> _Seen:
        """One that is tried at two pairs counts at both."""
        seen = _Seen(Counter(), Counter())
        share, left = self._around.share, SLICE_REQUESTS
        for item in members:
            if not item.is_decode:
                continue
            for given in list(item.given.values()):
                stage = given.stage
                seen.stages[stage] += 1
                if given.computed_by is not None and stage is not RequestStage.DECODE:
                    seen.links[(given.computed_by, item.key), stage] += 1
                if (left := left - 1) == 0:
                    left = SLICE_REQUESTS
                    await share.breathe()
        return seen

    def _stages(self, seen: _Seen) -> dict[str, int]:
        admission = self._of.admission
        waiting = admission.num_queued + admission.num_unused
        return {stage.value: seen.stages[stage] for stage in RequestStage} | {
            RequestStage.QUEUED.value: waiting
        }

    def _links(self, seen: _Seen) -> list[LinkRow]:
        rates = self._of.estimates.links.rates()
        return [
            LinkRow(
                prefill=link[0].worker_id,
                decode=link[1].worker_id,
                bytes_per_s=rates.get(link),
                num_prefill=seen.links[link, RequestStage.PREFILL],
                num_transfer=seen.links[link, RequestStage.TRANSFER],
            )
            for link in rates.keys() | {link for link, _ in seen.links}
        ]

    def _queue(self) -> list[QueueRow]:
        return [
            QueueRow(tenant=tenant, priority=priority.value, waiting=waiting)
            for priority in Priority
            for tenant, waiting in self._of.admission.queued_by_tenant(priority).items()
        ]


def telling(newest: Sequence[Decision]) -> list[Decision]:
    """Of decisions, the last first: those that came to something before those that run. Under load
    the last of all have come to nothing yet."""
    over = [each for each in newest if each.timing is not None or each.arrival.end][:MAX_OVER]
    known = {each.request_id for each in over}
    run = [each for each in newest if each.request_id not in known]
    known |= {each.request_id for each in run[: MAX_DECISIONS - len(over)]}
    return [each for each in newest if each.request_id in known]


def _blocks(load: EngineLoad) -> Blocks:
    return Blocks(
        load.free_blocks,
        load.cached_blocks,
        load.active_blocks,
        load.exported_blocks,
        load.receiving_blocks,
    )


def _pool(role: Role, workers: Sequence[WorkerRow]) -> PoolRow:
    own = [row for row in workers if row.role == role.value]
    return PoolRow(
        role=role.value,
        workers=len(own),
        ready=sum(row.state == "ready" for row in own),
        running=sum(row.running for row in own),
        waiting=sum(row.waiting for row in own),
        blocks=sum((row.blocks for row in own), Blocks()),
    )


def _importance(link: LinkRow) -> tuple[int, float]:
    """Those that are used now, and then the quickest."""
    return link.num_prefill + link.num_transfer, link.bytes_per_s or 0.0
