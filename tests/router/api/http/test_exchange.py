"""An answer's events: no timer where nothing waits, and one where the reader is behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
        self.leave: Callable[[], None] = lambda: None
        state = {
            "is_backed_up": lambda: self.is_backed_up,
            "has_arrived": lambda: True,
            "abort_connection": self.abort,
            "on_leaving": self.watch,
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

    def watch(self, listener: Callable[[], None]) -> None:
        self.leave = listener

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


async def test_work_is_over_when_its_client_is_said_to_have_left() -> None:
    client, ended = Client(is_backed_up=False), list[str]()

    async def work() -> None:
        try:
            client.leave()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleanly")

    with pytest.raises(Cancelled, match="closed the connection"):
        await client.exchange.until_disconnect(work())
    assert ended == ["cleanly"]
    await asyncio.sleep(0)  # nothing of the cancellation is left


async def test_a_client_that_leaves_after_the_end_of_the_work_cancels_nothing() -> None:
    client = Client(is_backed_up=False)
    await client.exchange.until_disconnect(asyncio.sleep(0))
    client.leave()
    await asyncio.sleep(0)


async def test_who_is_cancelled_by_the_server_as_well_is_not_told_that_the_client_left() -> None:
    client = Client(is_backed_up=False)
    task = asyncio.create_task(client.exchange.until_disconnect(asyncio.Event().wait()))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    client.leave()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
