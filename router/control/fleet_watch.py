"""What a router answers to an operator who watches a fleet. See protos/fleet_watch.proto."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict

import grpc

from cluster.errors import InvalidRequest
from cluster.membership.member import MAX_NAME_CHARS
from cluster.rpc import abort
from protos import fleet_watch_pb2, fleet_watch_pb2_grpc
from router.control.kv_links import KvLinks
from router.dispatch.both_lines import SeenLine
from router.dispatch.in_flight import InFlight, TakenRequest
from router.fleet.stage import RequestStage
from router.telemetry.decisions import DecisionLog
from router.telemetry.diary import Diary, Happening
from router.telemetry.lately import Lately
from router.telemetry.pressure_metrics import Pressure as PoolPressure
from router.telemetry.request_ids import is_known_as
from router.tenants.priority import Priority

WATCH_SERVICE_NAME = "splitserve.worker.v1.FleetWatch"
USUAL_LIMIT = 100
MAX_LIMIT = 1000
SLICE = 256
"""Requests or links that are looked at in one turn of the loop: some 3 us each."""


class FleetWatchService(fleet_watch_pb2_grpc.FleetWatchServicer):
    """The gRPC servicer; reads only, but for a planner's word, which becomes an event."""

    def __init__(
        self,
        in_flight: InFlight,
        links: KvLinks,
        diary: Diary,
        lately: Lately,
        lines: SeenLine,
        decisions: DecisionLog,
        work: Callable[[], Awaitable[fleet_watch_pb2.WorkResponse]],
        pressure: Callable[[], Iterable[PoolPressure]],
    ) -> None:
        """`work`: see `work_message`; `pressure`: see Watching."""
        self._in_flight = in_flight
        self._links = links
        self._diary = diary
        self._lately = lately
        self._lines = lines
        self._decisions = decisions
        self._work = work
        self._pressure = pressure

    async def Requests(
        self, request: fleet_watch_pb2.RequestsRequest, context: grpc.aio.ServicerContext
    ) -> fleet_watch_pb2.RequestsResponse:
        """Those that are asked for; who ends while others are looked at is left out. A stage that
        there is not is refused."""
        if request.stage and request.stage not in list(RequestStage):
            known = ", ".join(RequestStage)
            refusal = InvalidRequest(f"stage is {request.stage!r}; allowed: {known}", param="stage")
            await abort(context, refusal)
        wanted, has_more = list[fleet_watch_pb2.InFlight](), False
        limit = _limit_of(request.limit)
        everyone = self._in_flight.in_order(newest_first=request.newest_first)
        for at, taken in enumerate(everyone):
            if at % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            if not taken.is_over and is_wanted(taken, request):
                if has_more := len(wanted) == limit:
                    break
                wanted.append(self._told(taken))
        return fleet_watch_pb2.RequestsResponse(
            requests=wanted, has_more=has_more, num_in_flight=len(self._in_flight)
        )

    async def Links(
        self, request: fleet_watch_pb2.LinksRequest, context: grpc.aio.ServicerContext
    ) -> fleet_watch_pb2.LinksResponse:
        """Most bytes first."""
        links = list[fleet_watch_pb2.KvLink]()
        for at, link in enumerate(self._links):
            if at % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            links.append(link)
        links.sort(key=lambda each: (-each.num_bytes, each.prefill_worker, each.decode_worker))
        limit = _limit_of(request.limit)
        return fleet_watch_pb2.LinksResponse(
            links=links[:limit],
            has_more=len(links) > limit,
            bytes_per_s=self._links.usual_bytes_per_s,
        )

    async def Events(
        self, request: fleet_watch_pb2.EventsRequest, context: grpc.aio.ServicerContext
    ) -> fleet_watch_pb2.EventsResponse:
        """The newest of them, oldest first."""
        events = self._diary.after(request.after, _limit_of(request.limit))
        told = [fleet_watch_pb2.FleetEvent(**asdict(event)) for event in events]
        return fleet_watch_pb2.EventsResponse(events=told, last=self._diary.last)

    async def Work(
        self, request: fleet_watch_pb2.WorkRequest, context: grpc.aio.ServicerContext
    ) -> fleet_watch_pb2.WorkResponse:
        """Of this router's requests alone."""
        return await self._work()

    async def Pressure(
        self, request: fleet_watch_pb2.PressureRequest, context: grpc.aio.ServicerContext
    ) -> fleet_watch_pb2.PressureResponse:
        """As the metrics have it."""
        told = [fleet_watch_pb2.RolePressure(**asdict(each)) for each in self._pressure()]
        return fleet_watch_pb2.PressureResponse(pressures=told)

    async def Planned(
        self, request: fleet_watch_pb2.PlannerWord, context: grpc.aio.ServicerContext
    ) -> fleet_watch_pb2.PlannerWordTaken:
        """An event of this router."""
        if len(request.pool) > MAX_NAME_CHARS:
            refusal = InvalidRequest(f"a pool's name has at most {MAX_NAME_CHARS} characters")
            await abort(context, refusal)
        self._diary.note(Happening.PLANNED, request.pool, request.words)
        return fleet_watch_pb2.PlannerWordTaken()

    async def Lately(
        self, request: fleet_watch_pb2.LatelyRequest, context: grpc.aio.ServicerContext
    ) -> fleet_watch_pb2.LatelyResponse:
        """Of this router alone."""
        now = self._lately.now()
        return fleet_watch_pb2.LatelyResponse(
            window_s=now.window_s,
            classes=_queues(self._lines),
            num_in_flight=len(self._in_flight),
            num_finished=now.stages["ttft"].count,
            stages=[
                fleet_watch_pb2.StageTimes(stage=name, **asdict(times))
                for name, times in now.stages.items()
            ],
            **now.numbers,
        )

    def _told(self, taken: TakenRequest) -> fleet_watch_pb2.InFlight:
        request, under_way = taken.request, taken.under_way
        arrival = self._decisions.arrival_of(request.request_id)
        decode, prefill = taken.worker_ids
        return fleet_watch_pb2.InFlight(
            request_id=request.request_id,
            stage=taken.stage,
            tenant=request.tenant,
            priority=request.priority,
            decode_worker=decode,
            prefill_worker=prefill,
            age_s=taken.age_s,
            prompt_tokens=len(request.token_ids),
            answer_tokens=taken.num_answer_tokens,
            num_choices=request.sampling.n,
            max_tokens=request.sampling.max_tokens,
            deadline_s=taken.deadline_s,
            silent_s=taken.silent_s,
            lacked="" if arrival is None else arrival.lacked,
            notes=() if under_way is None else under_way.notes,
        )


def is_wanted(taken: TakenRequest, asked: fleet_watch_pb2.RequestsRequest) -> bool:
    """Whether all that was asked for is true of it."""
    request = taken.request
    return (
        asked.tenant in ("", request.tenant)
        and taken.age_s >= asked.older_than_s
        and asked.stage in ("", taken.stage)
        and (not asked.worker_id or asked.worker_id in taken.worker_ids)
        and (not asked.request_id or is_named(request.request_id, asked.request_id))
    )


def is_named(internal: str, asked: str) -> bool:
    """By its own id, or by the one that its client knows."""
    return internal == asked or is_known_as(internal, asked)


def _queues(lines: SeenLine) -> Sequence[fleet_watch_pb2.ClassQueue]:
    queued = {each: sum(lines.queued_by_tenant(each).values()) for each in Priority}
    return [
        fleet_watch_pb2.ClassQueue(priority=each, num_queued=number)
        for each, number in queued.items()
    ]


def _limit_of(asked: int) -> int:
    return min(asked or USUAL_LIMIT, MAX_LIMIT)
