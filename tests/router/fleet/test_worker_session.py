"""One stream, many requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster.errors import InternalError, InvalidRequest, OutOfBlocks, WorkerLost
from cluster.generation import EngineLoad
from protos import worker_pb2
from router.fleet.request_stream import RequestStream
from router.fleet.worker_session import WorkerSession
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    Frame,
    ended_frame,
    error_frame,
    tokens_frame,
    until,
)


@asynccontextmanager
async def connected(
    loads: list[EngineLoad] | None = None,
) -> AsyncIterator[tuple[FakeDecodeWorker, WorkerSession]]:
    worker = await FakeDecodeWorker().start()
    heard = loads if loads is not None else []
    session = WorkerSession(worker.worker_id, worker.address, on_load=heard.append)
    session.start()
    try:
        await until(lambda: session.is_open)
        yield worker, session
    finally:
        await session.close("was closed by the test")
        await worker.stop()


def submit(session: WorkerSession, request_id: str, max_tokens: int = 10) -> RequestStream:
    message = worker_pb2.Submit(request_id=request_id, token_ids=[1, 2])
    return session.submit(message, max_tokens=max_tokens)


def ids(message: worker_pb2.Tokens | worker_pb2.Ended) -> list[int]:
    assert isinstance(message, worker_pb2.Tokens)
    return [token.token_id for token in message.tokens]


async def test_frames_for_many_requests_reach_each_its_own() -> None:
    async with connected() as (worker, session):
        first, second = submit(session, "a"), submit(session, "b")
        await until(lambda: len(worker.submitted) == 2)
        frame = Frame()
        for part in (tokens_frame("a", 1, 2), tokens_frame("b", 7), tokens_frame("nobody", 9)):
            frame.MergeFrom(part)
        worker.send(frame)
        worker.send(ended_frame("a"))
        assert ids(await first.next()) == [1, 2]
        assert ids(await second.next()) == [7]
        assert isinstance(await first.next(), worker_pb2.Ended)
        assert session.num_in_flight == 1


async def test_an_error_of_the_worker_comes_back_as_its_class() -> None:
    async with connected() as (worker, session):
        stream = submit(session, "a")
        worker.send(error_frame("a", "out_of_blocks", "needs 9 blocks"))
        with pytest.raises(OutOfBlocks, match="9 blocks"):
            await stream.next()


async def test_a_consumer_that_leaves_cancels_and_late_tokens_are_dropped() -> None:
    async with connected() as (worker, session):
        stream = submit(session, "a")
        worker.send(tokens_frame("a", 1))
        await stream.next()
        stream.close()
        stream.close()
        await until(lambda: worker.cancelled == ["a"])
        worker.send(tokens_frame("a", 2))
        ended = submit(session, "b")
        worker.send(ended_frame("b"))
        await ended.next()
        ended.close()
        last = submit(session, "c")
        await until(lambda: len(worker.submitted) == 3)
        assert worker.cancelled == ["a"]
        last.close()


async def test_a_worker_that_sends_more_than_was_asked_for_ends_the_request() -> None:
    async with connected() as (worker, session):
        stream = submit(session, "a", max_tokens=2)
        worker.send(tokens_frame("a", 1, 2))
        worker.send(tokens_frame("a", 3))
        assert ids(await stream.next()) == [1, 2]
        with pytest.raises(InternalError):
            await stream.next()


async def test_an_id_in_use_is_refused() -> None:
    async with connected() as (_, session):
        stream = submit(session, "a")
        with pytest.raises(InvalidRequest, match="in use"):
            submit(session, "a")
        stream.close()


async def test_a_broken_stream_ends_every_request_at_once_and_the_session_comes_back() -> None:
    async with connected() as (worker, session):
        streams = [submit(session, name) for name in "abc"]
        worker.send(tokens_frame("a", 5))
        await until(lambda: len(worker.submitted) == 3)
        assert ids(await streams[0].next()) == [5]
        port = worker.port
        await worker.stop()
        for stream in streams:
            with pytest.raises(WorkerLost, match="decode-1"):
                async with asyncio.timeout(2.0):
                    await stream.next()
        await until(lambda: not session.is_open)
        with pytest.raises(WorkerLost):
            submit(session, "d")
        await worker.start(port)
        await until(lambda: session.is_open)
        assert session.num_in_flight == 0
        stream = submit(session, "a")
        await until(lambda: len(worker.submitted) == 4)
        worker.send(ended_frame("a"))
        assert isinstance(await stream.next(), worker_pb2.Ended)


async def test_a_closed_session_ends_its_requests_and_stays_closed() -> None:
    async with connected() as (worker, session):
        stream = submit(session, "a")
        await session.close("has fallen silent")
        with pytest.raises(WorkerLost, match="silent"):
            await stream.next()
        assert not session.is_open
        assert worker.num_sessions == 1


async def test_a_load_in_a_frame_is_heard() -> None:
    loads: list[EngineLoad] = []
    async with connected(loads) as (worker, _):
        worker.send(Frame(load=worker_pb2.EngineLoad(num_running=3)))
        await until(lambda: bool(loads))
        assert loads[0].num_running == 3
