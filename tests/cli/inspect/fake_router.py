"""A router with fixed numbers, asked without a network; and the command line in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli import question, several_routers
from cli.main import app
from cluster.config import RouterOptions
from cluster.errors import SplitserveError
from protos import fleet_watch_pb2, membership_pb2, router_admin_pb2, worker_pb2
from router.control.options_message import options_to_wire
from tests.cli.inspect.made_up_traces import traced_alone, traced_pair
from tests.cli.inspect.made_up_watch import four_events, last_seconds, three_requests, two_links
from tests.cli.inspect.made_up_work import worked_for_two_tenants

ADDRESS = "router:50051"


def member(worker_id: str, role: str, *, state: str = "ready", **load: float) -> Any:
    """As a router tells it; `load`: fields of its last beat."""
    return membership_pb2.MemberState(
        member=membership_pb2.Member(
            worker_id=worker_id,
            incarnation="i1",
            role=role,
            address=f"{worker_id}:7000",
            model="tiny",
            version="9.9",
            pid=77,
            kv_transport="nixl/UCX",
            kv_reader_secret="nobody-sees-this",
        ),
        load=worker_pb2.EngineLoad(**load),  # type: ignore[arg-type]
        state=state,
        beat_age_s=0.2,
        num_in_flight=2,
        indexed_blocks=30,
    )


def two_pools() -> list[Any]:
    """One prefill worker that hands over blocks, and two decode workers."""
    return [
        member(
            "prefill-0", "prefill", num_waiting=3, waiting_prefill_tokens=900, total_blocks=100,
            free_blocks=40, cached_blocks=30, active_blocks=18, exported_blocks=12, num_leases=2,
            prefill_tokens_per_s=1234.0,
        ),
        member(
            "decode-0", "decode", num_running=2, total_blocks=200, free_blocks=120,
            cached_blocks=20, active_blocks=48, receiving_blocks=12, num_leases=1,
            decode_step_ms=6.25, kv_bytes_per_s=2.5e6,
        ),
        member("decode-1", "decode", state="resting", total_blocks=200, free_blocks=200),
    ]  # fmt: skip


@dataclass
class FakeRouter:
    """A Dialer and the link that it gives. `failure`: what every call meets instead."""

    members_told: list[Any] = field(default_factory=two_pools)
    traces: list[Any] = field(default_factory=lambda: [traced_pair(), traced_alone()])
    started_with: RouterOptions = field(default_factory=RouterOptions)
    events_told: list[Any] = field(default_factory=four_events)
    failure: SplitserveError | None = None
    num_calls: int = 0

    def operator(self, address: str) -> FakeRouter:
        assert address == ADDRESS
        return self

    async def members(self, *, timeout_s: float) -> Any:
        self._answers()
        return membership_pb2.MembersResponse(
            members=self.members_told,
            num_queued=3,
            num_in_flight=4,
            uptime_s=3600.0,
            version="9.9",
            restarts=[membership_pb2.RestartCount(pool="decode", cause="stuck", count=2)],
        )

    async def trace(self, request: Any, *, timeout_s: float) -> Any:
        self._answers()
        found = [each for each in self.traces if request.request_id in ("", each.request_id)]
        return router_admin_pb2.TraceResponse(traces=found[: request.slowest or None])

    async def options(self, *, timeout_s: float) -> Any:
        self._answers()
        return options_to_wire(self.started_with)

    async def requests(self, request: Any, *, timeout_s: float) -> Any:
        self._answers()
        found = [each for each in three_requests() if is_asked_for(each, request)]
        return fleet_watch_pb2.RequestsResponse(
            requests=found[: request.limit or None],
            has_more=0 < request.limit < len(found),
            num_in_flight=3,
        )

    async def links(self, request: Any, *, timeout_s: float) -> Any:
        self._answers()
        return fleet_watch_pb2.LinksResponse(links=two_links(), bytes_per_s=1e9)

    async def events(self, request: Any, *, timeout_s: float) -> Any:
        self._answers()
        found = [each for each in self.events_told if each.number > request.after]
        last = max((each.number for each in self.events_told), default=0)
        return fleet_watch_pb2.EventsResponse(events=found[-request.limit :], last=last)

    async def work(self, *, timeout_s: float) -> Any:
        self._answers()
        return worked_for_two_tenants()

    async def lately(self, *, timeout_s: float) -> Any:
        self._answers()
        return last_seconds()

    async def close(self) -> None:
        """Nothing is open."""

    def _answers(self) -> None:
        self.num_calls += 1
        if self.failure is not None:
            raise self.failure


def is_asked_for(request: Any, asked: Any) -> bool:
    """By id, stage and tenant."""
    return (
        asked.request_id in ("", request.request_id)
        and asked.stage in ("", request.stage)
        and asked.tenant in ("", request.tenant)
    )


def run(patch: pytest.MonkeyPatch, router: FakeRouter, *words: str) -> Result:
    """A command that asks this router."""
    for asking in (question, several_routers):
        patch.setattr(asking, "GrpcDialer", lambda token: router)
    patch.setenv("COLUMNS", "200")
    return CliRunner().invoke(app, [*words, "--grpc", ADDRESS])
