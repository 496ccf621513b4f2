"""One router's stream: its requests, and the frames that answer them.

identities compared --> OPEN --the stream breaks, or either side ends it--> CLOSED: every request
                                                                            is cancelled
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc

from cluster.errors import InvalidRequest, SplitserveError, status_of
from cluster.generation import Usage
from cluster.logs import bind_request, get_logger
from decode_worker.decode_request import DecodeParts, DecodeRequest
from decode_worker.session_outlet import SessionOutlet
from engine.contract.messages import Frame
from protos import worker_pb2
from worker.admission import (
    MAX_REQUEST_ID_CHARS,
    check_prediction,
    check_size,
    check_targets,
    check_timeout,
)

_log = get_logger("decode_worker.session")


class RouterSession:
    """All calls from the event loop; `read` and `write` are the two halves of the stream."""

    def __init__(self, parts: DecodeParts) -> None:
        self._parts = parts
        self._outlet = SessionOutlet()
        self._requests: dict[str, DecodeRequest] = {}

    @property
    def num_requests(self) -> int:
        """Submitted and not ended."""
        return len(self._requests)

    async def read(self, messages: AsyncIterator[worker_pb2.RouterMessage]) -> None:
        """Takes the router's messages until it closes its side."""
        async for message in messages:
            match message.WhichOneof("message"):
                case "submit":
                    self._submit(message.submit)
                case "cancel":
                    self._cancel(message.cancel.request_id)
                case "finish":
                    self._finish(message.finish)
                case "open":
                    raise InvalidRequest("`open` is the first message of a session and no other")

    async def write(
        self,
        context: grpc.aio.ServicerContext[worker_pb2.RouterMessage, worker_pb2.WorkerFrame],
    ) -> None:
        """Writes frames until the session was ended by `finish`."""
        while (frame := await self._outlet.next_frame()) is not None:
            await context.write(frame)

    def step_done(self, frame: Frame) -> None:
        """An engine step's events were handed out."""
        if frame.load is not None:
            self._outlet.add_load(frame.load)
        self._outlet.flush()

    def finish(self) -> None:
        """The worker stops: what is waiting is still written, then the stream ends."""
        self._outlet.close()

    def cancel_all(self) -> None:
        """The stream is gone."""
        for request in list(self._requests.values()):
            request.cancel()

    def _submit(self, submit: worker_pb2.Submit) -> None:
        try:
            self._start(submit)
        except SplitserveError as error:
            self._refuse(submit, error)
        except Exception as error:
            _log.exception(
                "a request could not be read; it is refused", request_id=submit.request_id
            )
            self._refuse(
                submit, InvalidRequest(f"the request cannot be read ({type(error).__name__})")
            )

    def _start(self, submit: worker_pb2.Submit) -> None:
        request_id = submit.request_id
        if request_id in self._requests:
            raise InvalidRequest(
                f"request_id {request_id!r} is running already; choose another one",
                param="request_id",
            )
        check_timeout(submit.timeout_ms)
        check_targets(submit.prefill)
        check_prediction(submit.prediction)
        check_size(
            request_id,
            submit.token_ids,
            submit.sampling,
            submit.resume,
            max_context_tokens=self._parts.worker.ready.max_context_tokens,
        )
        lease = self._parts.worker.lifespan.admit()
        try:
            request = DecodeRequest(
                submit, self._parts, self._outlet, lease, lambda: self._forget(request_id)
            )
            self._requests[request_id] = request
            request.start()
        except BaseException:
            lease.release()
            self._forget(request_id)
            raise

    def _refuse(self, submit: worker_pb2.Submit, error: SplitserveError) -> None:
        code = status_of(error).code
        with bind_request(submit.request_id[:MAX_REQUEST_ID_CHARS]):
            _log.warning("a request is refused", code=code, error=error.message)
        usage = Usage(len(submit.token_ids), 0, 0)
        self._parts.worker.metrics.request_ended(code, usage, None)
        self._outlet.add_ended(submit.request_id, usage=usage, error=error)
        self._outlet.flush()

    def _cancel(self, request_id: str) -> None:
        request = self._requests.get(request_id)
        if request is not None:  # else it has ended, and Ended is on its way
            request.cancel()

    def _finish(self, finish: worker_pb2.Finish) -> None:
        request = self._requests.get(finish.request_id)
        if request is not None:  # else as above
            request.finish(list(finish.choices))

    def _forget(self, request_id: str) -> None:
        self._requests.pop(request_id, None)
