"""Who listens to which request of the engine: every event goes to one listener, the last one once.

submitted -> events ... -> RequestEnded: forgotten
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Protocol

from cluster.errors import InternalError, SplitserveError, status_of
from cluster.generation import Usage
from cluster.logs import get_logger
from engine.contract.messages import (
    Fetched,
    Frame,
    Pooled,
    Prefilled,
    PromptComputed,
    PromptScored,
    QueuePlace,
    RequestEnded,
    Reserved,
    Searched,
    Started,
    TokenEvent,
)

_log = get_logger("worker.engine")
RequestEvent = (
    Reserved
    | Started
    | Fetched
    | Prefilled
    | Pooled
    | PromptScored
    | PromptComputed
    | Searched
    | QueuePlace
    | TokenEvent
    | RequestEnded
)


class RequestListener(Protocol):
    """Whoever submitted a request."""

    def receive(self, event: RequestEvent) -> None:
        """Called from the event loop, in order; must return at once and not raise.

        The last event is a RequestEnded, also when the engine dies.
        """


class Listeners:
    """The live requests of one engine, by the engine's own request ids."""

    def __init__(self) -> None:
        self._listeners: dict[str, RequestListener] = {}
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._listeners)

    def name_for(self, request_id: str) -> str:
        """An id for the engine, new for every submission.

        One request may come twice, for example again after its first stream broke: the second
        must not meet the first one's events, nor be ended by its late cancellation.
        """
        return f"{request_id}#{next(self._numbers)}"

    def add(self, engine_id: str, listener: RequestListener) -> None:
        """From now on `listener` gets this request's events."""
        self._listeners[engine_id] = listener

    def drop(self, engine_id: str) -> None:
        """The engine has never heard of it: no event will come, nor an end."""
        self._listeners.pop(engine_id, None)

    def route(self, frame: Frame) -> list[str]:
        """Hands out a frame's events; those of unknown requests are dropped.

        Returns the requests whose listener failed: they have been ended with an InternalError, and
        the caller cancels them in the engine. The others do not notice.
        """
        failed: list[str] = []
        for event in _events_of(frame):
            listener = self._listeners.get(event.request_id)
            if listener is not None and not self._deliver(listener, event):
                failed.append(event.request_id)
        for ended in frame.ended:
            self._end(ended)
        return failed

    def end_all(self, error: SplitserveError) -> None:
        """The engine is gone: every request ends with this error."""
        for engine_id in list(self._listeners):
            self.end_one(engine_id, error)

    def end_one(self, engine_id: str, error: SplitserveError) -> None:
        """Ends a request that the engine will not answer."""
        self._end(
            RequestEnded(
                request_id=engine_id,
                usage=Usage(0, 0, 0),
                error_code=status_of(error).code,
                error_message=error.message,
            )
        )

    def _deliver(self, listener: RequestListener, event: RequestEvent) -> bool:
        try:
            listener.receive(event)
        except Exception:
            _log.exception(
                "news of a request could not be handled; the request is ended",
                engine_request=event.request_id,
            )
            self.end_one(
                event.request_id,
                InternalError("the worker failed on this request; its log says why"),
            )
            return False
        return True

    def _end(self, ended: RequestEnded) -> None:
        listener = self._listeners.pop(ended.request_id, None)
        if listener is None:
            return
        try:
            listener.receive(ended)
        except Exception:
            _log.exception(
                "the end of a request could not be handled; it may hang until its deadline",
                engine_request=ended.request_id,
            )


def _events_of(frame: Frame) -> Iterator[RequestEvent]:
    """All events but the last ones; tokens early, because somebody waits for the first one."""
    yield from frame.reserved
    yield from frame.started
    yield from frame.scored
    yield from frame.computed
    yield from frame.searched
    yield from frame.tokens
    yield from frame.prefilled
    yield from frame.pooled
    yield from frame.fetched
    yield from frame.places
