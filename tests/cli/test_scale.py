"""Scale against a fleet that a test plays: what is asked, shown, done and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
import typer

from cli.exit_code import ExitCode
from cli.scale import ScaleRequest, scale, sizes_of
from cluster.errors import WorkerLost
from cluster.scaling.pool_members import least_to_lose
from cluster.scaling.scaler import (
    OrderUnanswered,
    PoolState,
    RefusalReason,
    ScaleOrder,
    ScalePlan,
    ScaleRefused,
    check_order,
)
from protos.handoff_pb2 import Pairing
from protos.membership_pb2 import Member, MemberState
from tests.cli.run_cli import cli


@dataclass
class PlayedScaler:
    """Two pools, whose changes take effect at once; `num_gpus` for all of them."""

    sizes: dict[str, int] = field(default_factory=lambda: {"prefill": 1, "decode": 2})
    num_gpus: int = 8
    given: list[ScaleOrder] = field(default_factory=list)
    problem: str = ""

    async def pools(self) -> Sequence[PoolState]:
        return [
            PoolState(
                name=name,
                num_wanted=size,
                num_present=size,
                num_ready=0 if self.problem else size,
                generation=1,
                problem=self.problem,
            )
            for name, size in self.sizes.items()
        ]

    async def scale(self, order: ScaleOrder) -> ScalePlan:
        check_order(order, list(self.sizes))
        before = self.sizes[order.pool]
        if order.size - before > self.num_gpus:
            raise ScaleRefused(RefusalReason.GPUS, f"there are {self.num_gpus}")
        self.given.append(order)
        if not order.is_dry_run:
            self.sizes[order.pool] = order.size
        return ScalePlan(
            pool=order.pool, size_before=before, size=order.size, leaving=order.leaving
        )

    async def close(self) -> None:
        """Nothing was open."""


def asking(**sizes: int) -> ScaleRequest:
    return ScaleRequest(sizes=sizes, is_agreed=True)


def member(name: str, *, in_flight: int = 0, blocks: int = 0) -> MemberState:
    return MemberState(
        member=Member(
            worker_id=name,
            role=name.partition("-")[0],
            pairing=Pairing(block_size_tokens=32),
        ),
        num_in_flight=in_flight,
        indexed_blocks=blocks,
    )


MEMBERS = [
    member("decode-0", in_flight=1, blocks=2),
    member("decode-1", in_flight=0, blocks=9),
    member("decode-2", in_flight=0, blocks=3),
    member("prefill-0"),
]


def test_who_has_the_fewest_requests_and_then_the_smallest_cache_goes_first() -> None:
    assert least_to_lose(MEMBERS, "decode", 2) == ["decode-2", "decode-1"]
    assert least_to_lose(MEMBERS, "decode", -1) == []


async def test_several_pools_change_with_one_command() -> None:
    scaler = PlayedScaler()
    assert await scale(scaler, replace(asking(prefill=4, decode=6), waits=True)) is ExitCode.OK
    assert scaler.sizes == {"prefill": 4, "decode": 6}


async def test_a_worker_that_leaves_is_named_with_what_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaler = PlayedScaler(sizes={"decode": 3})
    assert await scale(scaler, asking(decode=2), MEMBERS) is ExitCode.OK
    assert scaler.given[-1].leaving == ("decode-2",)
    assert "decode-2 leaves" in (said := capsys.readouterr().err) and "96 cached tokens" in said


async def test_a_dry_run_gives_no_order() -> None:
    scaler = PlayedScaler()
    assert await scale(scaler, replace(asking(decode=3), is_dry_run=True)) is ExitCode.OK
    assert scaler.sizes["decode"] == 2 and all(order.is_dry_run for order in scaler.given)


async def test_a_refusal_of_one_pool_leaves_both_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaler = PlayedScaler(num_gpus=2)
    assert await scale(scaler, asking(prefill=2, decode=9)) is ExitCode.REFUSED
    assert scaler.sizes == {"prefill": 1, "decode": 2}
    assert "refused (gpus): there are 2" in capsys.readouterr().err
    assert await scale(scaler, asking(encode=1)) is ExitCode.REFUSED
    assert await scale(scaler, asking(decode=0)) is ExitCode.REFUSED


@dataclass
class Later(PlayedScaler):
    """The second order, that is no trial, fails."""

    failure: BaseException = field(default_factory=lambda: WorkerLost("the supervisor is gone"))

    async def scale(self, order: ScaleOrder) -> ScalePlan:
        if order.pool == "decode" and not order.is_dry_run:
            raise self.failure
        return await super().scale(order)


async def test_what_was_begun_before_a_refusal_is_said_with_how_to_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaler = Later(failure=ScaleRefused(RefusalReason.CHANGING, "on its way"))
    assert await scale(scaler, asking(prefill=2, decode=3)) is ExitCode.FAILED
    said = capsys.readouterr().err
    assert "begun: prefill from 1 to 2; decode not" in said
    assert "splitserve scale decode=3, to go on, or splitserve scale prefill=1, to" in said
    assert "refused" not in said
    assert await scale(Later(failure=scaler.failure), asking(decode=3)) is ExitCode.REFUSED


@pytest.mark.parametrize("failure", [OrderUnanswered("no answer"), WorkerLost("gone")])
async def test_of_several_pools_the_one_that_may_have_begun_is_said_and_taken_back_as_well(
    failure: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    scaler = Later(sizes={"prefill": 1, "decode": 2, "encode": 1}, failure=failure)
    assert await scale(scaler, asking(prefill=2, decode=3, encode=2)) is ExitCode.FAILED
    said = capsys.readouterr().err
    begun = "begun: prefill from 1 to 2; decode from 2 to 3 may have begun; encode not: decode ("
    assert begun in said and "refused" not in said
    back = "splitserve scale prefill=1 decode=2, to take it back"
    assert f"splitserve scale decode=3 encode=2, to go on, or {back}" in said


async def test_an_order_that_was_taken_and_not_answered_is_no_refusal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaler = Later(failure=OrderUnanswered("the supervisor has not answered; it may have begun"))
    assert await scale(scaler, asking(decode=3)) is ExitCode.FAILED
    said = capsys.readouterr().err
    assert "it may have begun" in said and "splitserve status" in said and "refused" not in said
    assert "decode from 2 to 3 may have begun" in said


@pytest.mark.parametrize("failure", [WorkerLost("gone"), asyncio.CancelledError()])
async def test_of_one_pool_too_it_is_said_that_it_may_have_begun(
    failure: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(type(failure)):
        await scale(Later(failure=failure), asking(decode=3))
    said = capsys.readouterr().err
    assert "error: decode from 2 to 3 may have begun\n" in said
    back = "splitserve scale decode=2, to take it back"
    assert f"splitserve scale decode=3, to go on, or {back}" in said and "refused" not in said


async def test_of_several_the_others_have_not_begun_where_the_first_is_not_answered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaler = Later()
    with pytest.raises(WorkerLost):
        await scale(scaler, asking(decode=3, prefill=2))
    said = capsys.readouterr().err
    assert "error: decode from 2 to 3 may have begun; prefill not\n" in said
    assert "splitserve scale decode=3 prefill=2, to go on, or splitserve scale decode=2, to" in said
    assert scaler.sizes["prefill"] == 1


async def test_without_consent_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer, "confirm", lambda *words, **options: False)
    scaler = PlayedScaler()
    assert await scale(scaler, replace(asking(decode=3), is_agreed=False)) is ExitCode.FAILED
    assert scaler.sizes["decode"] == 2


async def test_a_pool_that_cannot_get_ready_ends_the_wait_with_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaler = PlayedScaler(problem="decode-2 did not start: no room")
    assert await scale(scaler, replace(asking(decode=3), waits=True)) is ExitCode.FAILED
    assert "decode-2 did not start: no room" in capsys.readouterr().err


def test_words_that_are_no_sizes_are_a_wrong_call() -> None:
    assert sizes_of(["prefill=1", "decode=2"]) == {"prefill": 1, "decode": 2}
    for words in (["prefill"], ["=2"], ["prefill=x"], ["decode=1", "decode=2"]):
        with pytest.raises(typer.BadParameter):
            sizes_of(words)


def test_a_router_that_is_not_there_is_exit_code_three() -> None:
    done = cli("scale", "decode=2", "--grpc", "127.0.0.1:1", "--yes")
    assert done.returncode == ExitCode.UNREACHABLE
    assert "the router does not answer at 127.0.0.1:1" in done.stderr
