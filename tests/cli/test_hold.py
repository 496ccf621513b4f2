"""drain, cordon and uncordon against a router that a test plays."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli import hold
from cli.exit_code import ExitCode
from cli.hold import ENOUGH_LOOKS, HoldRequest, run_hold
from cli.main import app
from cluster.errors import DeadlineExceeded, SplitserveError, WorkerLost
from cluster.membership.hold import HoldKind
from protos import membership_pb2, worker_pb2

ADDRESS = "router:50051"


@dataclass
class PlayedRouter:
    """Two decode workers, of which one can be drained; `states` by look, the last for ever."""

    states: list[str] = field(default_factory=lambda: ["drained"])
    """As it shows them; "drained" is so by its own field as well, and by that alone."""
    reason: str = ""
    kind_before: str = ""
    failure: SplitserveError | None = None
    given: list[Any] = field(default_factory=list)
    num_looks: int = 0
    asked: list[str] = field(default_factory=list)
    others: dict[str, PlayedRouter] = field(default_factory=dict)
    """By address: those beside this one."""
    handed_on: list[str] = field(default_factory=list)
    hand_on_reason: str = ""

    def operator(self, address: str) -> PlayedRouter:
        self.asked.append(address)
        return self.others.get(address, self)

    async def hold(self, order: Any, *, timeout_s: float) -> Any:
        if self.failure is not None:
            raise self.failure
        if not order.dry_run:
            self.given.append((order.worker_id, order.kind, order.force))
        if self.reason and not order.force:
            return membership_pb2.HoldAnswer(reason=self.reason, message="because")
        return membership_pb2.HoldAnswer(
            worker_id=order.worker_id,
            role="decode",
            kind_before=self.kind_before,
            kind=order.kind,
            num_requests=3,
            cached_tokens=480,
            others=["decode-1"],
        )

    async def hand_on(self, order: Any, *, timeout_s: float) -> Any:
        self.handed_on.append(order.worker_id)
        if self.hand_on_reason:
            return membership_pb2.HandOnAnswer(reason=self.hand_on_reason, message="because")
        to = worker_pb2.ReceivedPrefixes(
            worker_id="decode-1", handed_tokens=320, known_tokens=64, num_bytes=2_000_000
        )
        report = worker_pb2.HandOnReport(cached_tokens=480, receivers=[to], seconds=0.5)
        return membership_pb2.HandOnAnswer(report=report)

    async def members(self, *, timeout_s: float) -> Any:
        state = self.states[min(self.num_looks, len(self.states) - 1)]
        self.num_looks += 1
        held = membership_pb2.MemberState(
            member=membership_pb2.Member(worker_id="decode-0"), state=state, num_in_flight=2
        )
        held.is_drained = state == "drained"
        return membership_pb2.MembersResponse(members=[held] if state != "gone" else [])

    async def close(self) -> None:
        """Nothing is open."""


def run(patch: pytest.MonkeyPatch, router: PlayedRouter, *words: str, says: str = "") -> Result:
    patch.setattr(hold, "GrpcDialer", lambda token: router)
    return CliRunner().invoke(app, [*words, "--grpc", ADDRESS], input=says)


async def at_once(seconds: float) -> None:
    """A sleep that takes no time."""


def waited(router: PlayedRouter, wait_s: float = 1e6) -> ExitCode:
    request = HoldRequest(
        worker_id="decode-0", kind=HoldKind.DRAIN, is_agreed=True, wait_s=wait_s, form="json"
    )
    return run_hold(ADDRESS, request, dialer=router, sleep=at_once)  # type: ignore[arg-type]


def test_a_drain_says_what_becomes_of_requests_and_cache_and_asks_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = PlayedRouter()
    done = run(monkeypatch, router, "drain", "decode-0", says="n\n")
    assert (done.exit_code, router.given) == (1, [])
    heading, row, *_ = done.stdout.splitlines()
    assert heading.split()[:4] == ["WORKER", "ROLE", "NOW", "THEN"]
    assert row.split()[:6] == ["decode-0", "decode", "takes", "requests", "drained", "3"]
    assert "3 request(s) go on with decode-1" in done.stderr
    assert "480 cached tokens" in done.stderr and "handed on as far as" in done.stderr
    assert router.handed_on == []
    done = run(monkeypatch, router, "drain", "decode-0", says="y\n")
    assert (done.exit_code, router.handed_on) == (0, ["decode-0"])
    assert router.given == [("decode-0", "drain", False)]
    assert (
        "decode-0 handed on 320 of 480 cached tokens to decode-1 (2.0 MB in 0.50 s); "
        "64 were known there, 96 are left" in done.stderr
    )


def test_a_cache_that_nobody_can_take_is_said_and_hinders_no_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = PlayedRouter(hand_on_reason="no_receiver")
    done = run(monkeypatch, router, "drain", "decode-0", "--yes")
    assert done.exit_code == 0
    assert "was not handed on (no_receiver): because" in done.stderr


def test_who_drains_without_handing_on_is_told_what_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = PlayedRouter()
    done = run(monkeypatch, router, "drain", "decode-0", "--yes", "--no-hand-on")
    assert (done.exit_code, router.handed_on) == (0, [])
    assert "not handed on" in done.stderr


@pytest.mark.parametrize(
    ("words", "kind"), [(("drain",), "drain"), (("cordon",), "cordon"), (("uncordon",), "")]
)
def test_a_trial_gives_no_order_and_yes_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], kind: str
) -> None:
    router = PlayedRouter()
    done = run(monkeypatch, router, *words, "decode-0", "--dry-run", "-o", "json")
    assert (done.exit_code, router.given) == (0, [])
    assert json.loads(done.stdout)["hold"] == (kind or "none")
    agreed = () if words == ("uncordon",) else ("--yes",)
    assert run(monkeypatch, router, *words, "decode-0", *agreed).exit_code == 0
    assert router.given == [("decode-0", kind, False)]


def test_an_order_that_changes_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, PlayedRouter(), "uncordon", "decode-0")
    assert (done.exit_code, done.stderr) == (0, "decode-0 is not held: nothing changes\n")
    again = run(monkeypatch, PlayedRouter(kind_before="cordon"), "cordon", "decode-0", "--yes")
    assert again.exit_code == 0 and "decode-0 is cordoned already" in again.stderr
    first = run(monkeypatch, PlayedRouter(kind_before="cordon"), "uncordon", "decode-0")
    assert "nothing changes" not in first.stderr


def test_a_refusal_is_exit_code_4_unless_forced_and_an_unknown_worker_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = PlayedRouter(reason="last_worker")
    refused = run(monkeypatch, router, "cordon", "decode-0", "--yes")
    assert (refused.exit_code, refused.stdout) == (4, "") and "last_worker" in refused.stderr
    assert run(monkeypatch, router, "cordon", "decode-0", "--yes", "--force").exit_code == 0
    router = PlayedRouter(reason="unknown_worker")
    assert run(monkeypatch, router, "drain", "decode-9", "--yes").exit_code == 1


def test_without_a_router_it_is_exit_code_3(monkeypatch: pytest.MonkeyPatch) -> None:
    for failure in (WorkerLost("nobody there"), DeadlineExceeded("late")):
        done = run(monkeypatch, PlayedRouter(failure=failure), "uncordon", "decode-0")
        assert done.exit_code == 3 and "--grpc" in done.stderr


def test_a_wait_is_over_when_looks_in_a_row_find_nothing_there() -> None:
    router = PlayedRouter(states=["draining", "drained", "draining", "drained"])
    assert waited(router) is ExitCode.OK
    assert router.num_looks == 3 + ENOUGH_LOOKS


def test_a_wait_is_over_when_the_worker_has_gone() -> None:
    assert waited(PlayedRouter(states=["draining", "gone"])) is ExitCode.OK


def test_a_wait_that_takes_too_long_is_exit_code_1_and_says_what_is_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert waited(PlayedRouter(states=["draining"]), wait_s=0.0) is ExitCode.FAILED
    assert "decode-0 is not drained" in capsys.readouterr().err


def test_all_routers_that_are_named_are_told_and_who_is_away_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = PlayedRouter(failure=WorkerLost("the router does not answer"))
    third = PlayedRouter()
    router = PlayedRouter(others={"away:1": away, "third:1": third})
    words = ["cordon", "decode-0", "--yes", "--grpc", f"away:1,{ADDRESS},third:1"]
    monkeypatch.setattr(hold, "GrpcDialer", lambda token: router)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert router.given == third.given == [("decode-0", "cordon", False)]
    assert away.given == [] and "away:1 was not told" in done.stderr


def test_what_a_state_is_called_does_not_end_the_wait() -> None:
    router = PlayedRouter(states=["silent,drained"] * 5 + ["drained"])
    assert waited(router) is ExitCode.OK
    assert router.num_looks == 5 + ENOUGH_LOOKS
