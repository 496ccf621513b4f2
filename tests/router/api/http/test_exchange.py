"""An answer's events: no timer where nothing waits, and one where the reader is behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.errors import Cancelled
from cluster.process.loop_share import LoopShare
from router.api.http.exchange import Exchange
from router.front.body_account import BodyAccount
from tests.router.front_fakes import small_limits


class Client:
    """A connection that takes what is sent, or has too much of it already."""

    def __init__(self, *, is_backed_up: bool) -> None:
        self.is_backed_up = is_backed_up
        self.num_taken = 0
        self.is_aborted = False
        state = {
            "is_backed_up": lambda: self.is_backed_up,
            "has_arrived": lambda: True,
            "abort_connection": self.abort,
        }
        limits = small_limits(reader_timeout_s=0.01)
        scope = {"state": state, "headers": [(b"content-type", b"application/json")]}
        self.exchange = Exchange(scope, self.receive, self.send, limits)

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    async def send(self, message: Any) -> None:
        if self.is_backed_up:
            await asyncio.Event().wait()
        self.num_taken += 1

    def abort(self) -> None:
        self.is_aborted = True


def no_timer(*_: Any, **__: Any) -> None:
    raise AssertionError("a timer for what waits for nothing")


async def test_a_body_that_has_arrived_costs_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "call_at", no_timer)
    client = Client(is_backed_up=False)
    with BodyAccount(1000).open(client.exchange.caller) as held:
        assert await client.exchange.read_json_body(held, LoopShare()) == b"{}"


async def test_events_that_are_read_cost_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "call_at", no_timer)
    client = Client(is_backed_up=False)
    for _ in range(100):
        await client.exchange.send_event(b"{}")
    assert client.num_taken == 100


async def test_a_client_that_is_behind_for_too_long_is_dropped() -> None:
    client = Client(is_backed_up=True)
    with pytest.raises(Cancelled, match="did not read"):
        await client.exchange.send_event(b"{}")
    assert client.is_aborted
