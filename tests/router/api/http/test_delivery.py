"""What is left of a body after its refusal: how much of it is read."""

from __future__ import annotations

import asyncio

import pytest

from router.api.http import delivery
from router.api.http.asgi import AsgiMessage
from router.api.http.delivery import Delivery

PIECE, MOST = 64 * 1024, 1024 * 1024


class Client:
    """Sends `num_pieces`, then nothing any more, and does not leave."""

    def __init__(self, num_pieces: int, *, is_whole: bool) -> None:
        self.num_left = num_pieces
        self.num_read = 0
        self._is_whole = is_whole
        self.sent: list[AsgiMessage] = []
        self.is_aborted = False
        scope = {
            "headers": [(b"transfer-encoding", b"chunked")],
            "state": {"max_refused_bytes": MOST, "abort_connection": self.abort},
        }
        self.delivery = Delivery(scope, self.receive, self.send, "id")

    async def receive(self) -> AsgiMessage:
        if not self.num_left:
            await asyncio.Event().wait()
        self.num_left -= 1
        self.num_read += 1
        more = not (self._is_whole and not self.num_left)
        return {"type": "http.request", "body": b"x" * PIECE, "more_body": more}

    async def send(self, message: AsgiMessage) -> None:
        self.sent.append(message)

    def abort(self) -> None:
        self.is_aborted = True

    async def refuse(self) -> None:
        await self.delivery.send({"type": "http.response.start", "status": 413, "headers": []})
        await self.delivery.send({"type": "http.response.body", "body": b"{}"})


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "DISCARD_S", 0.05)


async def test_a_refused_body_without_end_is_read_up_to_a_bound_and_its_connection_aborted() -> (
    None
):
    client = Client(10_000, is_whole=False)
    await client.refuse()
    assert client.num_read == MOST // PIECE
    assert client.is_aborted
    assert client.sent[1]["body"] == b"{}"


async def test_one_that_ends_within_the_bound_is_read_to_its_end() -> None:
    client = Client(MOST // PIECE, is_whole=True)
    await client.refuse()
    assert (client.num_left, client.is_aborted) == (0, False)
    assert client.sent[-1] == {"type": "http.response.body", "body": b""}


async def test_one_that_stands_still_is_waited_for_a_moment_only() -> None:
    client = Client(2, is_whole=False)
    await client.refuse()
    assert (client.num_read, client.is_aborted) == (2, False)
