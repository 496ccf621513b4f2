"""Requests that a client sends ahead: answered in order, one at a time, none of them read early."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from router.api.http.protocol import protocol_with
from tests.router.api.http.wire import Wire
from tests.router.front_fakes import hangs, running_front, small_limits, until

GET = b"GET /get HTTP/1.1\r\nhost: x\r\n\r\n"


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    return head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


AHEAD = (
    post("/a", b"one\r\n\r\ntwo") + GET + b"\r\n\r\n" + post("/b", b"") + GET + post("/c", b"three")
)
ANSWERS = [b"/a one\r\n\r\ntwo", b"/get ", b"/b ", b"/get ", b"/c three"]


@pytest.mark.parametrize("first", range(0, len(AHEAD), 10))
async def test_requests_sent_ahead_are_answered_in_order_wherever_reads_cut_them(
    first: int,
) -> None:
    for cut in range(first, min(first + 10, len(AHEAD))):
        wire = Wire()
        wire.protocol.data_received(AHEAD[:cut])
        await wire.turns()
        wire.protocol.data_received(AHEAD[cut:])
        wire.may_answer.set()
        await wire.settle()
        assert wire.answers == ANSWERS
        assert not wire.transport.is_closing()


async def test_requests_that_come_byte_by_byte_are_answered_in_order() -> None:
    wire = Wire()
    wire.may_answer.set()
    for at in range(len(AHEAD)):
        wire.protocol.data_received(AHEAD[at : at + 1])
    await wire.settle()
    assert wire.answers == ANSWERS


async def test_what_is_ahead_of_its_turn_is_not_parsed() -> None:
    wire = Wire()
    wire.protocol.data_received(GET * 1000)
    assert len(wire.protocol.pipeline) == 0
    wire.protocol.data_received(GET * 1000)
    await wire.turns()
    assert len(wire.protocol.pipeline) == 0
    assert wire.started == ["/get"]


async def test_a_client_that_sends_too_much_ahead_gets_the_answer_under_way_and_a_close() -> None:
    wire = Wire()
    wire.protocol.data_received(post("/a", b"one") + GET * 1000)
    for _ in range(10):
        wire.protocol.data_received(GET * 1000)
    limits, room = wire.protocol.limits, wire.protocol.room_ahead
    assert limits.max_all_ahead_bytes - room.num_free_bytes <= limits.max_ahead_bytes
    wire.may_answer.set()
    await wire.settle()
    assert wire.answers == [b"/a one"]
    assert b"connection: close" in wire.transport.written
    assert wire.transport.is_closing()


async def test_a_client_that_sends_on_and_on_while_it_is_answered_is_aborted() -> None:
    limits = small_limits()
    wire = Wire(protocol_with(limits))
    wire.protocol.data_received(GET)
    for _ in range((limits.max_ahead_bytes + limits.max_dropped_bytes) // 65_536 + 1):
        assert not wire.transport.is_closing()
        wire.protocol.data_received(b"x" * 65_536)
    wire.protocol.data_received(b"x" * 65_536)
    assert wire.transport.is_closing()
    wire.protocol.connection_lost(None)
    await wire.settle()


async def test_a_client_that_sends_empty_lines_without_end_is_aborted() -> None:
    limits = small_limits()
    wire = Wire(protocol_with(limits))
    for _ in range(limits.max_dropped_bytes // 65_536):
        wire.protocol.data_received(b"\r\n" * 32_768)
    assert not wire.transport.is_closing()
    wire.protocol.data_received(b"\r\n")
    assert wire.transport.is_closing()


async def test_who_sends_on_in_the_read_of_a_chunked_body_is_told_of_the_close() -> None:
    wire = Wire()
    wire.protocol.data_received(chunked("/a", b"one") + GET)
    wire.may_answer.set()
    await wire.settle()
    assert wire.answers == [b"/a one"]
    assert b"connection: close" in wire.transport.written
    assert wire.transport.is_closing()


async def test_chunked_requests_one_after_the_other_keep_their_connection() -> None:
    wire = Wire()
    wire.may_answer.set()
    for _ in range(3):
        wire.protocol.data_received(chunked("/a", b"one"))
        await wire.settle()
    assert wire.answers == [b"/a one"] * 3
    assert not wire.transport.is_closing()


async def test_a_connection_lost_with_requests_ahead_ends_the_one_under_way() -> None:
    wire = Wire()
    wire.protocol.data_received(post("/a", b"one") + GET)
    await wire.turns()
    wire.lose()
    await wire.settle()
    assert (wire.started, wire.left) == (["/a"], ["/a"])


async def test_a_client_that_leaves_requests_behind_frees_everything() -> None:
    body = b'{"prompt": "Hi"}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    request = head + b"content-length: %d\r\n\r\n" % len(body) + body
    with capture_logs() as logs:
        async with running_front(hangs()) as front:
            _reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
            writer.write(request + request + GET)
            await until(lambda: len(front.source.requests) == 1, "the first is dispatched")
            writer.transport.abort()
            await until(lambda: front.source.num_closed == 1, "it is cancelled")
            await until(lambda: front.in_flight.num_admitted == 0, "nothing is in flight")
            assert len(front.source.requests) == 1
    assert not [line for line in logs if "failed inside" in line["event"]]


async def test_a_request_sent_while_a_stream_runs_is_answered_after_it() -> None:
    wire = Wire()
    wire.protocol.data_received(GET)
    await wire.turns()
    wire.protocol.data_received(post("/next", b"one"))
    await wire.turns()
    assert wire.answers == []
    wire.may_answer.set()
    await wire.settle()
    assert wire.answers == [b"/get ", b"/next one"]


async def test_empty_lines_do_not_keep_an_idle_connection() -> None:
    wire = Wire()
    wire.may_answer.set()
    wire.protocol.data_received(GET)
    await wire.settle()
    wire.protocol.data_received(b"\r\n" * 100)
    assert wire.protocol.timeout_keep_alive_task is not None
    wire.protocol.data_received(GET)
    assert wire.protocol.timeout_keep_alive_task is None


async def test_what_connections_send_ahead_has_one_bound_and_is_given_back_with_each() -> None:
    door = protocol_with(small_limits(max_all_ahead_bytes=3 * len(GET)))
    first, second = Wire(door), Wire(door)
    for wire in (first, second):
        wire.protocol.data_received(GET)
        wire.protocol.data_received(GET + GET)
    assert door.room_ahead.num_free_bytes == len(GET)
    second.may_answer.set()
    await second.settle()
    assert (second.answers, second.transport.is_closing()) == ([b"/get "], True)
    first.lose()
    assert door.room_ahead.num_free_bytes == 3 * len(GET)
    await first.settle()
    third = Wire(door)
    third.protocol.data_received(GET)
    third.protocol.data_received(GET + GET)
    third.may_answer.set()
    await third.settle()
    assert third.answers == [b"/get "] * 3
    assert door.room_ahead.num_free_bytes == 3 * len(GET)


OFFER = b"POST /a HTTP/1.1\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n"
BODIES = {
    "length": b"content-length: 5\r\n\r\nthree",
    "chunked": b"transfer-encoding: chunked\r\n\r\n2\r\nth\r\n3\r\nree\r\n0\r\n\r\n",
    "trailer": b"transfer-encoding: chunked\r\n\r\n5\r\nthree\r\n0\r\nx: y\r\n\r\n",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_body_whose_head_offers_another_protocol_is_read_all_the_same(body: bytes) -> None:
    request = OFFER + b"http2-settings: AAEAAA\r\n" + body
    for cut in range(len(request)):
        wire = Wire()
        wire.may_answer.set()
        wire.protocol.data_received(request[:cut])
        await wire.turns()
        wire.protocol.data_received(request[cut:])
        await wire.settle()
        wire.protocol.data_received(request if cut % 2 else GET)
        await wire.settle()
        assert wire.answers == [b"/a three", b"/a three" if cut % 2 else b"/get "]
        assert not wire.transport.is_closing()


async def test_what_follows_such_a_body_in_its_read_is_answered_where_its_end_is_known() -> None:
    known, chunked_one = Wire(), Wire()
    for wire, body in ((known, BODIES["length"]), (chunked_one, BODIES["chunked"])):
        wire.may_answer.set()
        wire.protocol.data_received(OFFER + body + GET)
        await wire.settle()
    assert known.answers == [b"/a three", b"/get "]
    assert chunked_one.answers == [b"/a three"]
    assert b"connection: close" in chunked_one.transport.written


@pytest.mark.parametrize("coding", [b"gzip", b"chunked, gzip"])
async def test_such_a_body_without_an_end_is_refused(coding: bytes) -> None:
    wire = Wire()
    wire.protocol.data_received(OFFER + b"transfer-encoding: " + coding + b"\r\n\r\nthree")
    await wire.settle()
    assert wire.transport.written.startswith(b"HTTP/1.1 400 ")
    assert wire.transport.written.count(b"HTTP/1.1 ") == 1
    assert (wire.started, wire.transport.is_closing()) == ([], True)


async def test_an_offer_without_a_body_is_a_request() -> None:
    for framing in (b"\r\n", b"content-length: 0\r\n\r\n"):
        wire = Wire()
        wire.may_answer.set()
        wire.protocol.data_received(OFFER + framing + GET)
        await wire.settle()
        assert wire.answers == [b"/a ", b"/get "]
