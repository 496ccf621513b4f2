"""What is written in one turn of the loop, and when it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from router.api.http.gathered_writes import (
    MAX_GATHERED_BYTES,
    MAX_TOGETHER,
    GatheringTransport,
    SendTurns,
)
from tests.router.api.http.wire import FakeTransport


class CountingTransport(FakeTransport):
    """Counts what would be system calls."""

    num_sends = 0

    def writelines(self, list_of_data: Iterable[bytes]) -> None:  # type: ignore[override]
        self.num_sends += 1
        self.write(b"".join(list_of_data))


async def test_a_head_and_its_body_are_one_send() -> None:
    below = CountingTransport()
    transport = GatheringTransport(below, SendTurns())
    transport.write(b"head ")
    transport.write(b"body")
    assert below.written == b"" and transport.get_write_buffer_size() == 9
    await asyncio.sleep(0)
    assert below.written == b"head body" and below.num_sends == 1
    assert transport.get_write_buffer_size() == 0


async def test_as_many_connections_as_are_sent_together_do_not_wait_for_the_turns_end() -> None:
    turns, below = SendTurns(), [CountingTransport() for _ in range(MAX_TOGETHER + 1)]
    for each in below:
        GatheringTransport(each, turns).write(b"x")
    assert [each.written for each in below] == [b"x"] * MAX_TOGETHER + [b""]
    await asyncio.sleep(0)
    assert below[-1].written == b"x"


async def test_more_than_is_gathered_of_one_connection_is_sent_at_once() -> None:
    below = CountingTransport()
    GatheringTransport(below, SendTurns()).write(b"x" * (MAX_GATHERED_BYTES + 1))
    assert len(below.written) == MAX_GATHERED_BYTES + 1


async def test_what_was_written_before_a_close_is_sent_and_before_an_abort_is_not() -> None:
    closed, aborted = CountingTransport(), CountingTransport()
    turns = SendTurns()
    for below, end in ((closed, "close"), (aborted, "abort")):
        transport = GatheringTransport(below, turns)
        transport.write(b"x")
        getattr(transport, end)()
    await asyncio.sleep(0)
    assert closed.written == b"x" and aborted.written == b""


async def test_a_connection_that_is_lost_before_its_turn_holds_up_no_other() -> None:
    turns, below = SendTurns(), [CountingTransport(), CountingTransport()]
    for each in below:
        GatheringTransport(each, turns).write(b"x")
    below[0].has_closed = below[0].is_lost = True
    await asyncio.sleep(0)
    assert below[1].written == b"x"


class BrokenTransport(FakeTransport):
    """Its end is known to nobody yet."""

    def writelines(self, list_of_data: Iterable[bytes]) -> None:  # type: ignore[override]
        raise OSError("no more")


async def test_a_connection_that_cannot_be_written_to_ends_alone() -> None:
    turns, broken, below = SendTurns(), BrokenTransport(), CountingTransport()
    GatheringTransport(broken, turns).write(b"x")
    other = GatheringTransport(below, turns)
    other.write(b"first ")
    await asyncio.sleep(0)
    other.write(b"second")
    await asyncio.sleep(0)
    assert below.written == b"first second"
    assert broken.is_closing()
