"""flip against a router that a test plays, with its supervisor: the cache goes over once, and it is
said to whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from cli import flip
from cli.exit_code import ExitCode
from cli.flip_plan import FlipRequest
from protos import fleet_watch_pb2, membership_pb2, worker_pb2

REQUEST = FlipRequest(worker_id="prefill-1", place="decode", is_agreed=True, waits=True)


@dataclass
class PlayedRouter:
    """Changes take effect at once. A spare takes the place in decode: what is started is not it."""

    sizes: dict[str, int] = field(default_factory=lambda: {"prefill": 2, "decode": 1})
    workers: list[str] = field(default_factory=lambda: ["prefill-0", "prefill-1", "decode-0"])
    num_looks_late: int = 0
    """Until the new worker has joined."""
    hand_on_reason: str = ""
    handed_on: list[tuple[str, list[str]]] = field(default_factory=list)
    events_told: list[str] = field(default_factory=list)

    def operator(self, address: str) -> PlayedRouter:
        return self

    async def members(self, *, timeout_s: float) -> Any:
        if self.sizes["decode"] == 2 and "decode-spare-0" not in self.workers:
            if not self.num_looks_late:
                self.workers.append("decode-spare-0")
            self.num_looks_late -= 1
        members = [
            membership_pb2.Member(worker_id=name, role=name.partition("-")[0])
            for name in self.workers
        ]
        return membership_pb2.MembersResponse(
            members=[membership_pb2.MemberState(member=each) for each in members],
            pools=[
                membership_pb2.PoolState(name=name, wanted=size, present=size, ready=size)
                for name, size in self.sizes.items()
            ],
        )

    async def scale(self, order: Any, *, timeout_s: float) -> Any:
        before = self.sizes[order.pool]
        if not order.dry_run:
            self.sizes[order.pool] = order.size
            for name in order.leaving:
                if not order.handed_on:
                    self._take_over(name, ["prefill-0"])
        starting = ["decode-1"] if order.size > before else []
        return membership_pb2.ScaleAnswer(
            pool=order.pool, size_before=before, size=order.size, starting=starting
        )

    async def hand_on(self, order: Any, *, timeout_s: float) -> Any:
        if self.hand_on_reason:
            return membership_pb2.HandOnAnswer(reason=self.hand_on_reason, message="because")
        self._take_over(order.worker_id, list(order.receivers))
        received = worker_pb2.ReceivedPrefixes(worker_id=order.receivers[0], handed_tokens=480)
        report = worker_pb2.HandOnReport(cached_tokens=480, receivers=[received], seconds=0.5)
        return membership_pb2.HandOnAnswer(report=report)

    async def events(self, request: Any, *, timeout_s: float) -> Any:
        events = [
            fleet_watch_pb2.FleetEvent(kind="handed on", subject="prefill-1", cause=words)
            for words in self.events_told
        ]
        return fleet_watch_pb2.EventsResponse(events=events, last=7)

    async def close(self) -> None:
        """Nothing is open."""

    def _take_over(self, worker_id: str, receivers: list[str]) -> None:
        self.handed_on.append((worker_id, receivers))
        self.events_told.append(f"480 of 480 cached tokens to {', '.join(receivers)}")


def flipped(patch: pytest.MonkeyPatch, router: PlayedRouter) -> ExitCode:
    patch.setattr(flip, "GrpcDialer", lambda token: router)
    patch.setattr(flip, "_LOOK_S", 0.0)
    return flip.run_flip("router:50051", REQUEST)


@pytest.mark.parametrize("num_looks_late", [0, 3])
def test_the_worker_that_has_joined_takes_the_cache_over_and_nobody_else_does(
    num_looks_late: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    router = PlayedRouter(num_looks_late=num_looks_late)
    assert flipped(monkeypatch, router) is ExitCode.OK
    assert router.handed_on == [("prefill-1", ["decode-spare-0"])]
    said = capsys.readouterr().err
    assert said.count("prefill-1 handed on") == 1
    assert "480 of 480 cached tokens to decode-spare-0" in said


def test_where_the_new_worker_takes_nothing_the_old_ones_siblings_do_and_both_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    router = PlayedRouter(hand_on_reason="no_receiver")
    assert flipped(monkeypatch, router) is ExitCode.OK
    assert router.handed_on == [("prefill-1", ["prefill-0"])]
    said = capsys.readouterr().err
    assert "was not handed on (no_receiver): because" in said
    assert "prefill-1 handed on 480 of 480 cached tokens to prefill-0" in said
