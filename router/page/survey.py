"""Takes the snapshot: looks at the router's own records, asks no worker, and changes nothing.

A large fleet is looked at in slices, between which the loop serves others; so what stands in one
snapshot may be some milliseconds apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import count
from typing import Protocol

from cluster import VERSION
from cluster.deadline import Clock
from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.process.loop_share import LoopShare
from router.dispatch.both_lines import SeenLine
from router.dispatch.degradation import Degradation
from router.fleet.fleet import Fleet
from router.fleet.member import Assignment, FleetMember
from router.fleet.stage import RequestStage
from router.page.decision_rows import decision_row
from router.page.history import History
from router.page.snapshot import Blocks, LinkRow, PoolRow, QueueRow, Snapshot, WorkerRow
from router.pricing.estimates import Estimates
from router.telemetry.decisions import Decision, DecisionLog
from router.telemetry.metrics import RouterMetrics
from router.tenants.priority import Priority

SLICE_WORKERS = 100
"""Each takes 1.5 us: 0.15 ms between two looks at the clock (2-core machine)."""
SLICE_REQUESTS = 1000
"""Each takes 0.2 us."""
_PREFILL, _TRANSFER, _DECODE = RequestStage.PREFILL, RequestStage.TRANSFER, RequestStage.DECODE
MAX_WORKERS = 1000
MAX_LINKS = 96
MAX_QUEUES = 24
MAX_DECISIONS = 12
MAX_OVER = 9
"""Of these: where so many have come to something, the others are the newest that run."""
SEARCHED_DECISIONS = 256


class PageSources(Protocol):
    """What the page is about: FleetPlane."""

    fleet: Fleet
    estimates: Estimates
    decisions: DecisionLog
    metrics: RouterMetrics
    degradation: Degradation

    @property
    def lines(self) -> SeenLine:
        """Of the router, as one."""
        ...

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


_Pair = tuple[str, str]
"""(prefill worker, decode worker)"""


class _Seen:
    """Of requests at workers. Names are counted by, and no keys: their hashes are at hand."""

    def __init__(self) -> None:
        self.stages = dict.fromkeys(RequestStage, 0)
        self.prefilled = dict[_Pair, int]()
        self.transferred = dict[_Pair, int]()

    def look_at(self, decode: str, given: Sequence[Assignment]) -> None:
        """Some of the requests of one decode worker."""
        prefilled, transferred = list[str](), list[str]()
        num_local = 0
        for each in given:
            stage = each.stage
            if stage is _DECODE:
                continue
            if each.computed_by is None:
                num_local += 1
            elif stage is _PREFILL:
                prefilled.append(each.computed_by.worker_id)
            else:
                transferred.append(each.computed_by.worker_id)
        self.stages[_PREFILL] += num_local + len(prefilled)
        self.stages[_TRANSFER] += len(transferred)
        self.stages[_DECODE] += len(given) - num_local - len(prefilled) - len(transferred)
        _add(self.prefilled, decode, prefilled)
        _add(self.transferred, decode, transferred)


def _add(counts: dict[_Pair, int], decode: str, prefill: list[str]) -> None:
    here = dict[str, int]()
    for name in prefill:
        here[name] = here.get(name, 0) + 1
    for name, number in here.items():
        counts[name, decode] = counts.get((name, decode), 0) + number


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
        workers = await self._workers(members)
        seen = await self._seen(members)
        links, num_links = self._links(seen)
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
            pools=_pools(workers),
            workers=workers[:MAX_WORKERS],
            num_workers=len(workers),
            links=links,
            num_links=num_links,
            queue=nlargest(MAX_QUEUES, queue, key=lambda row: row.waiting),
            num_queues=len(queue),
            decisions=[decision_row(each) for each in recent],
            series=self._history.series(),
        )

    async def _workers(self, members: Sequence[FleetMember]) -> list[WorkerRow]:
        rows = list[WorkerRow]()
        for at in range(0, len(members), SLICE_WORKERS):
            await self._around.share.breathe()
            rows += [self._worker(item) for item in members[at : at + SLICE_WORKERS]]
        return rows

    def _worker(self, item: FleetMember) -> WorkerRow:
        load = item.load
        return WorkerRow(
            id=item.key.worker_id,
            role=item.member.role.value,
            pool=item.member.pool or item.member.role.value,
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
        seen, left = _Seen(), SLICE_REQUESTS
        for item in members:
            if not item.is_decode or not item.given:
                continue
            given = list(item.given.values())
            for at in range(0, len(given), SLICE_REQUESTS):
                part = given[at : at + SLICE_REQUESTS]
                seen.look_at(item.key.worker_id, part)
                if (left := left - len(part)) <= 0:
                    left = SLICE_REQUESTS
                    await self._around.share.breathe()
        return seen

    def _stages(self, seen: _Seen) -> dict[str, int]:
        lines = self._of.lines
        seen.stages[RequestStage.QUEUED] = lines.num_queued + lines.num_unused
        return {stage.value: number for stage, number in seen.stages.items()}

    def _links(self, seen: _Seen) -> tuple[list[LinkRow], int]:
        """Those that are used now, and then the quickest; and of how many."""
        measured = self._of.estimates.links.rates().items()
        rates = {(p.worker_id, d.worker_id): rate for (p, d), rate in measured}
        pairs = rates.keys() | seen.prefilled.keys() | seen.transferred.keys()

        def importance(pair: _Pair) -> tuple[int, float]:
            num_used = seen.prefilled.get(pair, 0) + seen.transferred.get(pair, 0)
            return num_used, rates.get(pair, 0.0)

        rows = [
            LinkRow(
                prefill=pair[0],
                decode=pair[1],
                bytes_per_s=rates.get(pair),
                num_prefill=seen.prefilled.get(pair, 0),
                num_transfer=seen.transferred.get(pair, 0),
            )
            for pair in nlargest(MAX_LINKS, pairs, key=importance)
        ]
        return rows, len(pairs)

    def _queue(self) -> list[QueueRow]:
        return [
            QueueRow(tenant=tenant, priority=priority.value, waiting=waiting)
            for priority in Priority
            for tenant, waiting in self._of.lines.queued_by_tenant(priority).items()
        ]


def telling(newest: Sequence[Decision]) -> list[Decision]:
    """Of decisions, the last first: those that came to something before those that run. Under load
    the last of all have come to nothing yet."""
    over = [each for each in newest if each.usage is not None or each.arrival.end][:MAX_OVER]
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


def _pools(workers: Sequence[WorkerRow]) -> list[PoolRow]:
    """By role; one that has none is there all the same."""
    names = {role: sorted({row.pool for row in workers if row.role == role}) for role in Role}
    return [
        _pool(name, role, [row for row in workers if (row.pool, row.role) == (name, role)])
        for role in Role
        for name in names[role] or [role.value]
    ]


def _pool(name: str, role: Role, own: Sequence[WorkerRow]) -> PoolRow:
    return PoolRow(
        pool=name,
        role=role.value,
        workers=len(own),
        ready=sum(row.state == "ready" for row in own),
        running=sum(row.running for row in own),
        waiting=sum(row.waiting for row in own),
        blocks=sum((row.blocks for row in own), Blocks()),
    )
