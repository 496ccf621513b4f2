"""The router's stream to one decode worker: requests out, one frame per engine step back.

    CONNECTING --connected--> OPEN --broken--> CONNECTING ...      close: CLOSED

When the stream breaks, every request on it ends at once with WorkerLost; the session connects
again until it is closed, which happens when the worker is no member any more.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable

import grpc

from cluster.errors import InvalidRequest, SplitserveError, WorkerLost
from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.rpc import error_of, open_channel
from cluster.wire import load_from_wire
from protos import worker_pb2, worker_pb2_grpc
from router.fleet.request_stream import RequestStream

CONNECT_TIMEOUT_S = 2.0
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 1.0

_log = get_logger("worker_session")


class SessionState(enum.Enum):
    """Whether requests can be sent."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


class WorkerSession:
    """One per decode worker process. All calls from the event loop.

    `on_load` hears the worker's state with every frame that carries one; `on_open` each time that
    the stream becomes usable; `on_handoff` which prefill worker a request has used, and whether it
    failed.
    """

    def __init__(
        self,
        worker_id: str,
        address: str,
        *,
        on_load: Callable[[EngineLoad], None] = lambda load: None,
        on_open: Callable[[], None] = lambda: None,
        on_handoff: Callable[[WorkerKey, bool], None] = lambda worker, failed: None,
    ) -> None:
        self._worker_id = worker_id
        self._address = address
        self._on_load = on_load
        self._on_open = on_open
        self._on_handoff = on_handoff
        self._state = SessionState.CONNECTING
        self._streams: dict[str, RequestStream] = {}
        self._outgoing: asyncio.Queue[worker_pb2.RouterMessage] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """True while requests can be sent."""
        return self._state is SessionState.OPEN

    @property
    def num_in_flight(self) -> int:
        """Requests sent and not ended."""
        return len(self._streams)

    def start(self) -> None:
        """Connects in the background."""
        self._task = asyncio.create_task(self._run(), name=f"session-{self._worker_id}")

    async def close(self, reason: str) -> None:
        """Ends every request with WorkerLost and stays closed; idempotent."""
        self._state = SessionState.CLOSED
        self._lose(reason)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def submit(self, submit: worker_pb2.Submit, *, max_tokens: int) -> RequestStream:
        """Sends a request that may produce `max_tokens` over all choices.

        Raises WorkerLost when the stream is not open and InvalidRequest for an id in use.
        """
        request_id = submit.request_id
        if not self.is_open:
            raise self._lost("is not connected")
        if request_id in self._streams:
            raise InvalidRequest(
                f"request_id {request_id!r} is in use; choose another", param="request_id"
            )
        stream = RequestStream(
            max_tokens=max_tokens,
            on_finish=lambda choice: self._finish(request_id, choice),
            on_close=lambda: self._drop(request_id),
        )
        self._streams[request_id] = stream
        self._outgoing.put_nowait(worker_pb2.RouterMessage(submit=submit))
        return stream

    async def _run(self) -> None:
        delay_s = FIRST_RETRY_S
        while True:
            was_open = await self._connect_and_serve()
            delay_s = FIRST_RETRY_S if was_open else min(2 * delay_s, LAST_RETRY_S)
            await asyncio.sleep(delay_s)

    async def _connect_and_serve(self) -> bool:
        """One connection's life; True when it had become usable."""
        self._outgoing = asyncio.Queue()
        channel = open_channel(self._address)
        reason, was_open = "closed its stream", False
        try:
            call = worker_pb2_grpc.DecodeWorkerStub(channel).Session()
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await call.wait_for_connection()
            was_open = True
            self._opened()
            await self._serve(call)
        except grpc.aio.AioRpcError as failure:
            reason = error_of(failure).message
        except TimeoutError:
            reason = f"did not answer within {CONNECT_TIMEOUT_S:.0f} s"
        finally:
            if self._state is SessionState.OPEN:
                self._state = SessionState.CONNECTING
                _log.warning("lost a decode worker", worker_id=self._worker_id, reason=reason)
            self._lose(reason)
            await channel.close()
        return was_open

    def _opened(self) -> None:
        self._state = SessionState.OPEN
        _log.info("connected to a decode worker", worker_id=self._worker_id, address=self._address)
        self._on_open()

    async def _serve(self, call: grpc.aio.StreamStreamCall) -> None:
        writer = asyncio.create_task(self._write(call))
        try:
            while (frame := await call.read()) is not grpc.aio.EOF:
                self._take(frame)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            call.cancel()

    async def _write(self, call: grpc.aio.StreamStreamCall) -> None:
        while True:
            await call.write(await self._outgoing.get())

    def _take(self, frame: worker_pb2.WorkerFrame) -> None:
        for tokens in frame.tokens:
            stream = self._streams.get(tokens.request_id)
            if stream is not None:  # else it was cancelled
                stream.add_tokens(tokens)
        for ended in frame.ended:
            stream = self._streams.pop(ended.request_id, None)
            if stream is not None:
                stream.end(ended)
        for item in frame.handoffs:
            self._on_handoff(WorkerKey(item.worker_id, item.incarnation), item.failed)
        if frame.HasField("load"):
            self._on_load(load_from_wire(frame.load))

    def _finish(self, request_id: str, choice: int) -> None:
        finish = worker_pb2.Finish(request_id=request_id, choices=[choice])
        self._outgoing.put_nowait(worker_pb2.RouterMessage(finish=finish))

    def _drop(self, request_id: str) -> None:
        """The consumer has gone before the request's end: the worker need not go on."""
        if self._streams.pop(request_id, None) is not None and self.is_open:
            cancel = worker_pb2.Cancel(request_id=request_id)
            self._outgoing.put_nowait(worker_pb2.RouterMessage(cancel=cancel))

    def _lose(self, reason: str) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.fail(self._lost(reason))

    def _lost(self, reason: str) -> SplitserveError:
        return WorkerLost(f"decode worker {self._worker_id} at {self._address} {reason}; try again")
