"""What takes its time by pieces and not by bytes: headers, chunks, trailers."""

from __future__ import annotations

import json

import pytest

from router.api.http.protocol import CHUNKS_AT_ONCE, MIN_CHUNK_BYTES
from tests.router.api.http.wire import Wire

HEAD = b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
CHUNKED = HEAD + b"\r\n"
OFFERING = HEAD + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n"


def chunk(num_bytes: int) -> bytes:
    return b"%x\r\n%b\r\n" % (num_bytes, b"y" * num_bytes)


def refusal(wire: Wire) -> tuple[int, dict[str, str]]:
    """Status and error of the one answer, after which the connection closes."""
    assert wire.transport.is_closing()
    (answer,) = wire.answers
    status = int(wire.transport.written.split(b" ")[1])
    return status, json.loads(answer)["error"]


async def test_a_hundred_headers_are_a_request() -> None:
    wire = Wire()
    wire.may_answer.set()
    wire.protocol.data_received(b"GET /a HTTP/1.1\r\n" + b"a: b\r\n" * 100 + b"\r\n")
    await wire.settle()
    assert wire.answers == [b"/a "]


async def test_more_headers_are_refused_and_not_read() -> None:
    wire = Wire()
    wire.protocol.data_received(b"GET /a HTTP/1.1\r\n" + b"a:\r\n" * 6400 + b"\r\n")
    status, error = refusal(wire)
    assert (status, error["code"]) == (431, "head_too_large")
    assert "100 headers" in error["message"]
    assert len(wire.protocol.headers) == 101


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
async def test_a_head_of_too_many_bytes_is_refused_with_its_limit(end: bytes) -> None:
    wire = Wire()
    wire.protocol.data_received(b"GET /a HTTP/1.1\r\nx: " + b"y" * 40_000 + end)
    status, error = refusal(wire)
    assert (status, error["code"]) == (431, "head_too_large")
    assert "32768 bytes" in error["message"]


@pytest.mark.parametrize("head", [CHUNKED, OFFERING])
async def test_a_body_of_crumbs_is_refused_before_it_is_read(head: bytes) -> None:
    wire = Wire()
    wire.protocol.data_received(head + chunk(1) * 40_000)
    status, error = refusal(wire)
    assert (status, error["code"]) == (400, "invalid_request")
    assert "chunks" in error["message"]
    assert len(wire.protocol.cycle.body) <= 2 * CHUNKS_AT_ONCE


async def test_crumbs_after_a_large_body_are_refused_as_soon() -> None:
    wire = Wire()
    for _ in range(50):
        wire.protocol.data_received((CHUNKED if wire.protocol.cycle is None else b"") + chunk(8192))
    assert not wire.transport.is_closing()
    wire.protocol.data_received(chunk(1) * 40_000)
    assert refusal(wire)[0] == 400
    assert len(wire.protocol.cycle.body) <= 50 * 8192 + 2 * CHUNKS_AT_ONCE


@pytest.mark.parametrize(("count", "size"), [(CHUNKS_AT_ONCE, 1), (5000, MIN_CHUNK_BYTES)])
async def test_a_few_crumbs_or_many_fair_chunks_are_a_body(count: int, size: int) -> None:
    wire = Wire()
    wire.may_answer.set()
    for _ in range(2):
        wire.protocol.data_received(CHUNKED + chunk(size) * count + b"0\r\n\r\n")
        await wire.settle()
    assert wire.answers == [b"/a " + b"y" * count * size] * 2


@pytest.mark.parametrize("head", [CHUNKED, OFFERING])
async def test_many_trailers_are_refused(head: bytes) -> None:
    wire = Wire()
    wire.protocol.data_received(head + chunk(1) + b"0\r\n" + b"a:\r\n" * 6400)
    assert refusal(wire)[0] == 431


async def test_a_trailer_without_end_is_refused() -> None:
    wire = Wire()
    wire.protocol.data_received(CHUNKED + chunk(1) + b"0\r\na: ")
    for _ in range(40):
        wire.protocol.data_received(b"y" * 1000)
    assert refusal(wire)[0] == 431


async def test_a_fault_after_an_answer_has_begun_is_not_written_into_it() -> None:
    wire = Wire()
    wire.protocol.data_received(CHUNKED + chunk(1))
    await wire.turns()
    await wire.protocol.cycle.send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]}
    )
    wire.protocol.data_received(b"ZZZ\r\n")
    assert wire.transport.is_closing()
    assert wire.answers == [b""]


async def test_the_work_of_a_request_with_a_fault_ends_with_its_connection() -> None:
    wire = Wire()
    wire.protocol.data_received(CHUNKED + chunk(1))
    await wire.turns()
    wire.protocol.data_received(b"ZZZ\r\n")
    assert refusal(wire)[0] == 400
    wire.lose()
    await wire.settle()
    assert wire.left == ["/a"]


async def test_a_request_that_was_refused_while_its_body_came_answers_no_more() -> None:
    wire = Wire()
    wire.protocol.data_received(CHUNKED + chunk(1))
    await wire.turns()
    wire.protocol.data_received(b"ZZZ\r\n")
    wire.may_answer.set()
    await wire.settle()
    assert wire.left == ["/a"]
