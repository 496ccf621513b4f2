"""One stream, many requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from cluster.dial.dialer import SessionLink
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import (
    InternalError,
    InvalidRequest,
    NotReady,
    OutOfBlocks,
    PairingMismatch,
    SplitserveError,
    WorkerLost,
    WrongWorker,
)
from cluster.generation import EngineLoad
from cluster.membership.member import Member
from cluster.pairing import GRAMMAR_VERSION, SEARCH_VERSION, VLLM
from cluster.world import World
from protos import worker_pb2
from router.fleet.request_stream import Ended, RequestStream, WorkerMessage
from router.fleet.unread import ChoiceTokens
from router.fleet.worker_link import LinkEvents
from router.fleet.worker_session import WorkerSession
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    Frame,
    ended_frame,
    error_frame,
    tokens_frame,
    until,
)
from tests.router.planes import PAIRING


@asynccontextmanager
async def connected(
    loads: list[EngineLoad] | None = None,
) -> AsyncIterator[tuple[FakeDecodeWorker, WorkerSession]]:
    heard = loads if loads is not None else []
    async with FakeDecodeWorker() as worker:
        session = WorkerSession(worker.member(), World(), LinkEvents(on_load=heard.append))
        session.start()
        try:
            await until(lambda: session.is_open)
            yield worker, session
        finally:
            await session.close("was closed by the test")


async def test_a_load_with_impossible_numbers_is_left_out_and_its_frame_is_not() -> None:
    loads = list[EngineLoad]()
    async with connected(loads) as (worker, session):
        stream = submit(session, "r1")
        for step_ms in (float("nan"), float("inf"), -1.0):
            worker.send(Frame(load=worker_pb2.EngineLoad(decode_step_ms=step_ms)))
        worker.send(tokens_frame("r1", 5))
        assert ids(await stream.next()) == [5]
        assert loads == [] and session.is_open
        worker.send(Frame(load=worker_pb2.EngineLoad(decode_step_ms=7.0)))
        await until(lambda: loads == [EngineLoad(decode_step_ms=7.0)])


def submit(session: WorkerSession, request_id: str, max_tokens: int = 10) -> RequestStream:
    message = worker_pb2.Submit(request_id=request_id, token_ids=[1, 2])
    return session.submit(message, max_tokens=max_tokens)


def ids(message: WorkerMessage) -> list[int]:
    assert isinstance(message, ChoiceTokens)
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
        assert isinstance(await first.next(), Ended)
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
                async with asyncio.timeout(20.0):
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
        assert isinstance(await stream.next(), Ended)


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


def strangers(worker: FakeDecodeWorker) -> list[Member]:
    """Whom a router may mean while `worker` answers."""
    return [
        worker.member(worker_id="llama-decode-7", incarnation="i9"),
        worker.member(incarnation="an-older-process"),
        worker.member(pairing=replace(PAIRING, weights_digest="zz")),
    ]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["address-reused", "restarted", "another-model"])
async def test_a_session_never_opens_with_another_process_than_the_one_meant(which: int) -> None:
    async with FakeDecodeWorker() as worker:
        meant = strangers(worker)[which]
        worker.member()  # it is itself again
        found: list[SplitserveError] = []
        session = WorkerSession(meant, World(), LinkEvents(on_mismatch=found.append))
        session.start()
        await until(lambda: bool(found))
        assert not session.is_open
        assert isinstance(found[0], PairingMismatch if which == 2 else WrongWorker)
        with pytest.raises(WorkerLost):
            submit(session, "a")
        await session.close("was closed by the test")
        assert not worker.submitted


async def test_a_frame_that_cannot_be_handled_ends_the_requests_and_the_session_comes_back() -> (
    None
):
    async with FakeDecodeWorker() as worker:

        def refuse(load: EngineLoad) -> None:
            raise ZeroDivisionError("a bug of ours")

        session = WorkerSession(worker.member(), World(), LinkEvents(on_load=refuse))
        session.start()
        await until(lambda: session.is_open)
        stream = submit(session, "a")
        worker.send(Frame(load=worker_pb2.EngineLoad(num_running=3)))
        with pytest.raises(WorkerLost, match="ZeroDivisionError"):
            await stream.next()
        await until(lambda: session.is_open and worker.num_sessions == 2)
        await session.close("was closed by the test")


class BadlyWriting(SessionLink):
    """A link whose writer fails by a bug once it has said the first word."""

    def __init__(self, link: SessionLink) -> None:
        self._link = link
        self._has_spoken = False

    async def read(self) -> worker_pb2.WorkerFrame | None:
        return await self._link.read()

    async def write(self, message: worker_pb2.RouterMessage) -> None:
        if self._has_spoken:
            raise ZeroDivisionError("a bug of ours")
        self._has_spoken = True
        await self._link.write(message)

    async def close(self) -> None:
        await self._link.close()


class BadDialer(GrpcDialer):
    def session(self, address: str) -> SessionLink:
        return BadlyWriting(super().session(address))


async def test_a_writer_that_fails_by_a_bug_is_not_silent() -> None:
    async with FakeDecodeWorker() as worker:
        session = WorkerSession(worker.member(), World(dialer=BadDialer()))
        session.start()
        await until(lambda: session.is_open)
        stream = submit(session, "a")
        with pytest.raises(WorkerLost, match="ZeroDivisionError"):
            await stream.next()
        await until(lambda: worker.num_sessions == 2)
        await session.close("was closed by the test")


async def test_a_worker_that_would_sample_instead_is_not_sent_a_beam_search() -> None:
    old = replace(PAIRING, protocol_version=SEARCH_VERSION - 1)
    async with FakeDecodeWorker() as worker:
        session = WorkerSession(worker.member(pairing=old), World(), LinkEvents())
        session.start()
        await until(lambda: session.is_open)
        asked = worker_pb2.Submit(request_id="r1", token_ids=[1])
        asked.sampling.beams.width = 2
        with pytest.raises(NotReady, match="searches no beams"):
            session.submit(asked, max_tokens=4)
        await session.close("was closed by the test")
    assert not old.searches_beams


async def test_a_worker_that_would_not_know_of_a_grammar_is_not_sent_one() -> None:
    old = replace(PAIRING, protocol_version=GRAMMAR_VERSION - 1)
    async with FakeDecodeWorker() as worker:
        session = WorkerSession(worker.member(pairing=old), World(), LinkEvents())
        session.start()
        await until(lambda: session.is_open)
        asked = worker_pb2.Submit(request_id="r1", token_ids=[1])
        asked.sampling.grammar.text = "start: /a/"
        with pytest.raises(NotReady, match="follows no grammars"):
            session.submit(asked, max_tokens=4)
        await session.close("was closed by the test")
    assert not old.follows_grammars and replace(old, weights=VLLM).follows_grammars
