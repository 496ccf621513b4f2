"""`splitserve adapters` against a router that is played."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from cli.adapters import list_adapters, load_adapter, unload_adapter
from cli.exit_code import ExitCode
from cluster.dial.dialer import Dialer
from cluster.errors import InvalidRequest
from protos.membership_pb2 import (
    AdapterAnswer,
    AdapterOutcome,
    Member,
    MembersResponse,
    MemberState,
    OfferedAdapter,
)


class PlayedRouter:
    """An OperatorLink, and the Dialer that leads to it."""

    def __init__(self, *outcomes: AdapterOutcome, refusal: InvalidRequest | None = None) -> None:
        self.outcomes, self.refusal = outcomes, refusal
        self.told: list[Any] = []
        self.is_closed = False

    def operator(self, address: str) -> PlayedRouter:
        return self

    async def order_load(self, request: Any, *, timeout_s: float) -> AdapterAnswer:
        self.told.append(request)
        if self.refusal is not None:
            raise self.refusal
        return AdapterAnswer(outcomes=self.outcomes)

    order_unload = order_load

    async def members(self, *, timeout_s: float) -> MembersResponse:
        adapters = [OfferedAdapter(name="one", digest="d1", resident=True)]
        member = Member(worker_id="decode-0", role="decode")
        return MembersResponse(members=[MemberState(member=member, adapters=adapters)])

    async def close(self) -> None:
        self.is_closed = True


def dialer(router: PlayedRouter) -> Dialer:
    return cast(Dialer, router)


def test_an_order_is_given_and_what_each_worker_says_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    router = PlayedRouter(AdapterOutcome(worker_id="decode-0", digest="abc"))
    assert load_adapter("r:1", "one", "folder/one", dialer=dialer(router)) == ExitCode.OK
    assert (router.told[0].name, router.told[0].path) == ("one", "folder/one")
    assert router.is_closed
    assert unload_adapter("r:1", "one", dialer=dialer(router)) == ExitCode.OK
    said = capsys.readouterr()
    assert "decode-0: abc" in said.out + said.err


def test_a_worker_that_refuses_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    router = PlayedRouter(
        AdapterOutcome(worker_id="decode-0", digest="abc"),
        AdapterOutcome(worker_id="prefill-0", code="adapter_refused", message="use_dora is set"),
    )
    assert load_adapter("r:1", "one", "one", dialer=dialer(router)) == ExitCode.FAILED
    assert "prefill-0: use_dora is set" in capsys.readouterr().err


def test_a_router_that_refuses_and_one_without_workers_are_failures() -> None:
    refusing = PlayedRouter(refusal=InvalidRequest("no name"))
    assert load_adapter("r:1", "../x", "one", dialer=dialer(refusing)) != ExitCode.OK
    assert unload_adapter("r:1", "one", dialer=dialer(PlayedRouter())) == ExitCode.FAILED


def test_the_list_says_who_has_which_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert list_adapters("r:1", "json", dialer=dialer(PlayedRouter())) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == [
        {"name": "one", "digest": "d1", "worker": "decode-0", "role": "decode", "resident": True}
    ]
