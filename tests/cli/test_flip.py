"""flip over pools that a test plays: in what order, what is refused, what is said."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
import typer

from cli.exit_code import ExitCode
from cli.flip import flip
from cli.flip_plan import FlipRequest
from cluster.errors import WorkerLost
from cluster.scaling.scaler import (
    OrderUnanswered,
    RefusalReason,
    ScaleOrder,
    ScalePlan,
    ScaleRefused,
)
from tests.cli.test_scale import PlayedScaler

ROLES = {"prefill-0": "prefill", "prefill-1": "prefill", "decode-0": "decode"}


@dataclass
class Crowded(PlayedScaler):
    """Room for so many workers in all."""

    most: int = 3
    sizes: dict[str, int] = field(default_factory=lambda: {"prefill": 2, "decode": 1})

    async def scale(self, order: ScaleOrder) -> ScalePlan:
        others = sum(size for pool, size in self.sizes.items() if pool != order.pool)
        if order.size > self.sizes.get(order.pool, 0) and others + order.size > self.most:
            raise ScaleRefused(RefusalReason.GPUS, f"there are {self.most} GPUs")
        plan = await super().scale(order)
        if order.size > plan.size_before:
            return replace(plan, starting=(f"{order.pool}-{plan.size_before}",))
        return plan


@dataclass
class Heard:
    """Who was to take over, and how the pools were then."""

    scaler: PlayedScaler
    asked: list[tuple[tuple[str, ...], dict[str, int]]] = field(default_factory=list)
    is_taken: bool = True

    async def __call__(self, starting: Sequence[str]) -> bool:
        self.asked.append((tuple(starting), dict(self.scaler.sizes)))
        return self.is_taken


def asking(worker_id: str = "prefill-1", place: str = "decode") -> FlipRequest:
    return FlipRequest(worker_id=worker_id, place=place, is_agreed=True, waits=True)


async def test_the_new_worker_is_there_and_takes_over_before_the_old_one_goes() -> None:
    scaler = Crowded(most=4)
    heard = Heard(scaler)
    assert await flip(scaler, asking(), heard, roles=ROLES) is ExitCode.OK
    assert heard.asked == [(("decode-1",), {"prefill": 2, "decode": 2})]
    assert scaler.sizes == {"prefill": 1, "decode": 2}
    assert scaler.given[-1].leaving == ("prefill-1",)


@pytest.mark.parametrize("is_taken", [True, False])
async def test_what_the_new_worker_has_taken_over_goes_to_nobody_else(is_taken: bool) -> None:
    scaler = Crowded(most=4)
    heard = Heard(scaler, is_taken=is_taken)
    assert await flip(scaler, asking(), heard, roles=ROLES) is ExitCode.OK
    assert scaler.given[-1].is_handed_on is is_taken


async def test_without_room_for_both_the_old_one_goes_first_and_it_is_said_what_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaler = Crowded(most=3)
    heard = Heard(scaler)
    assert await flip(scaler, asking(), heard, roles=ROLES) is ExitCode.OK
    assert heard.asked == [] and scaler.sizes == {"prefill": 1, "decode": 2}
    done = [(order.pool, order.size) for order in scaler.given if not order.is_dry_run]
    assert done == [("prefill", 1), ("decode", 2)]
    said = capsys.readouterr().err
    assert "no room for both at once: there are 3 GPUs" in said and "is lost" in said


async def test_a_dry_run_and_a_no_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scaler = Crowded(most=4)
    heard = Heard(scaler)
    trial = replace(asking(), is_dry_run=True)
    assert await flip(scaler, trial, heard, roles=ROLES) is ExitCode.OK
    monkeypatch.setattr(typer, "confirm", lambda *words, **options: False)
    unsure = replace(asking(), is_agreed=False)
    assert await flip(scaler, unsure, heard, roles=ROLES) is ExitCode.FAILED
    assert scaler.sizes == {"prefill": 2, "decode": 1} and heard.asked == []


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (asking("decode-0", "prefill"), "refused (below_one): decode-0 is the only worker"),
        (asking("prefill-9"), "refused (no_such_worker)"),
        (asking("prefill-0", "prefill"), "is a prefill worker already"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    request_: FlipRequest, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scaler = Crowded(most=4)
    assert await flip(scaler, request_, Heard(scaler), roles=ROLES) is ExitCode.REFUSED
    assert says in capsys.readouterr().err
    assert scaler.sizes == {"prefill": 2, "decode": 1}


async def test_a_fleet_that_nobody_supervises_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaler = PlayedScaler(sizes={})
    assert await flip(scaler, asking(), Heard(scaler), roles=ROLES) is ExitCode.REFUSED
    assert "refused (unsupervised)" in capsys.readouterr().err


async def test_a_new_worker_that_does_not_start_leaves_the_old_one_where_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaler = Crowded(most=4, problem="decode-1 did not start: no memory")
    heard = Heard(scaler)
    assert await flip(scaler, asking(), heard, roles=ROLES) is ExitCode.FAILED
    assert scaler.sizes["prefill"] == 2 and heard.asked == []
    assert scaler.sizes["decode"] == 1, "nobody is left who takes the next room"
    assert scaler.given[-1].leaving == ("decode-1",)
    said = capsys.readouterr().err
    assert "decode-1 did not start" in said and "decode is to have 1 again" in said
    assert "splitserve flip prefill-1 decode --one-by-one" in said


async def test_what_cannot_be_taken_back_is_said_with_why_and_with_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Changing(Crowded):
        async def scale(self, order: ScaleOrder) -> ScalePlan:
            if order.size == self.sizes["decode"] - 1:
                raise ScaleRefused(RefusalReason.CHANGING, "decode is on its way")
            return await super().scale(order)

    scaler = Changing(most=4, problem="decode-1 did not start: no memory")
    assert await flip(scaler, asking(), Heard(scaler), roles=ROLES) is ExitCode.FAILED
    said = " ".join(capsys.readouterr().err.split())
    assert "did not start: no memory; and not taken back: decode is on its way" in said
    assert "splitserve scale decode=1" in said and "is to have 1 again" not in said


async def test_a_way_back_that_nobody_answered_keeps_the_reason_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Silent(Crowded):
        async def scale(self, order: ScaleOrder) -> ScalePlan:
            if order.size == self.sizes["decode"] - 1:
                raise OrderUnanswered("it may have begun")
            return await super().scale(order)

    scaler = Silent(most=4, problem="decode-1 did not start: no memory")
    assert await flip(scaler, asking(), Heard(scaler), roles=ROLES) is ExitCode.FAILED
    said = " ".join(capsys.readouterr().err.split())
    assert "did not start: no memory; whether that is taken back is not known" in said
    assert "it may have begun" in said and "splitserve scale decode=1" in said


async def test_the_old_one_goes_first_where_that_is_asked_for() -> None:
    scaler = Crowded(most=4)
    heard = Heard(scaler)
    request = replace(asking(), goes_first=True)
    assert await flip(scaler, request, heard, roles=ROLES) is ExitCode.OK
    done = [(order.pool, order.size) for order in scaler.given if not order.is_dry_run]
    assert done == [("prefill", 1), ("decode", 2)] and heard.asked == []


async def test_an_order_that_nobody_answered_is_told_with_what_may_be_left_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Silent(Crowded):
        async def scale(self, order: ScaleOrder) -> ScalePlan:
            plan = await super().scale(order)
            if not order.is_dry_run:
                raise OrderUnanswered("it may have begun")
            return plan

    scaler = Silent(most=4)
    assert await flip(scaler, asking(), Heard(scaler), roles=ROLES) is ExitCode.FAILED
    said = capsys.readouterr().err
    assert "decode may keep a worker more" in said and "splitserve scale decode=1" in said


@pytest.mark.parametrize("failure", [WorkerLost("away"), asyncio.CancelledError()])
async def test_who_is_interrupted_is_told_what_is_left_and_how_to_mend_it(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def lost(*words: object) -> None:
        raise failure

    monkeypatch.setattr("cli.flip.wait_until_ready", lost)
    scaler = Crowded(most=4)
    with pytest.raises(type(failure)):
        await flip(scaler, asking(), Heard(scaler), roles=ROLES)
    said = capsys.readouterr().err
    assert "decode may keep a worker more" in said and "splitserve scale decode=1" in said


class Signalled(Crowded):
    """A signal comes as the order `at` is given, of those that are no trials."""

    at = 0
    number = signal.SIGTERM

    async def scale(self, order: ScaleOrder) -> ScalePlan:
        plan = await super().scale(order)
        done = [each for each in self.given if not each.is_dry_run]
        if not order.is_dry_run and len(done) == self.at + 1:
            os.kill(os.getpid(), self.number)
            await asyncio.Event().wait()
        return plan


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("at", "goes_first", "told", "remedy"),
    [
        (0, False, "decode may keep a worker more", "splitserve scale decode=1"),
        (1, False, "prefill-1 may have stayed", "splitserve scale decode=1"),
        (0, True, "prefill-1 goes, or has gone", "splitserve scale decode=2"),
        (1, True, "prefill-1 has gone, and no decode worker is", "splitserve scale decode=2"),
    ],
)
async def test_a_signal_is_heard_as_ctrl_c_is(
    number: signal.Signals,
    at: int,
    goes_first: bool,
    told: str,
    remedy: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaler = Signalled(most=4)
    scaler.at, scaler.number = at, number
    before = signal.signal(number, signal.SIG_DFL)  # whoever started the tests may ignore it
    try:
        with pytest.raises(typer.Exit) as end:
            await flip(scaler, replace(asking(), goes_first=goes_first), Heard(scaler), roles=ROLES)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert end.value.exit_code == 128 + number
    said = capsys.readouterr().err
    assert told in said and remedy in said


async def test_who_is_started_to_ignore_a_hangup_ignores_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        scaler = Crowded(most=4)

        async def hung_up(starting: Sequence[str]) -> bool:
            os.kill(os.getpid(), signal.SIGHUP)
            return True

        assert await flip(scaler, asking(), hung_up, roles=ROLES) is ExitCode.OK
    finally:
        signal.signal(signal.SIGHUP, before)
