"""A join token is changed in three rounds of restarts, in none of which a call is refused."""

from __future__ import annotations

import pytest

from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import ConfigError, WrongToken
from cluster.join_token import JOIN_TOKEN, JOIN_TOKEN_TOO, admitted_tokens
from tests.cluster.test_join_token import OURS, THEIRS, ask_everything, fleet_with

NEXT = "next-of-this-fleet-alone"
ROUNDS = [(OURS, None), (OURS, NEXT), (NEXT, OURS), (NEXT, None)]
"""What a process shows, and what it lets in as well: before, in two rounds, and after the third."""


def given(monkeypatch: pytest.MonkeyPatch, token: str | None, too: str | None) -> None:
    for name, value in ((JOIN_TOKEN, token), (JOIN_TOKEN_TOO, too)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize("of", range(len(ROUNDS) - 1))
async def test_processes_of_two_rounds_that_follow_each_other_call_each_other(
    of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for caller, called in ((of, of + 1), (of + 1, of)):
        given(monkeypatch, None, ROUNDS[called][1])
        async with fleet_with(ROUNDS[called][0], monkeypatch) as (_, address):
            outcomes = await ask_everything(GrpcDialer(ROUNDS[caller][0]), address)
        assert not any(isinstance(each, WrongToken) for each in outcomes), (caller, called)


async def test_a_round_that_is_left_out_and_a_third_token_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given(monkeypatch, None, None)
    async with fleet_with(NEXT, monkeypatch) as (fleet, address):
        outcomes = await ask_everything(GrpcDialer(OURS), address)
        assert all(isinstance(each, WrongToken) for each in outcomes) and fleet.num_reached == 0
    given(monkeypatch, None, OURS)
    async with fleet_with(NEXT, monkeypatch) as (fleet, address):
        outcomes = await ask_everything(GrpcDialer(THEIRS), address)
        assert all(isinstance(each, WrongToken) for each in outcomes) and fleet.num_reached == 0


def test_a_second_token_alone_asks_for_none_and_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, None, NEXT)
    with pytest.raises(ConfigError, match=f"{JOIN_TOKEN} is not"):
        admitted_tokens()


def test_a_second_token_is_held_to_the_same_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, OURS, "short")
    with pytest.raises(ConfigError, match=JOIN_TOKEN_TOO) as refused:
        admitted_tokens()
    assert "short" not in str(refused.value)
