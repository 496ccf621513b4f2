"""What the dispatcher needs of a worker that answers, whatever its engine and whatever it speaks.

    adapter.link(member) -> link: not open -> open <-> not open -> closed
                                     submit -> RequestStream -> tokens, then one end

Our own workers are linked over gRPC: decode workers (`worker_session.py`), and prefill workers that
pool (`pooling_link.py`). Other engines have an adapter each, which says of a member whether it is
one of its own. Above a link nobody knows which engine answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cluster.errors import SplitserveError
from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from cluster.membership.member import Member
from protos import worker_pb2
from router.engine_events.source import EngineEventSource
from router.fleet.request_stream import NOBODY, RequestStream, StreamListener
from router.fleet.unread import UnreadBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEvents:
    """Whom a link tells what it hears. All are called from the event loop and must not raise."""

    on_load: Callable[[EngineLoad], None] = lambda load: None
    """The worker's state in numbers, whenever it has said it."""
    on_work: Callable[[], None] = lambda: None
    """It has computed something, whomever for, by its own word: no answer need have shown it."""
    on_open: Callable[[], None] = lambda: None
    """Requests can be sent: now, or again."""
    on_lost: Callable[[str], None] = lambda reason: None
    """No more, and why; not where it was closed."""
    on_handoff: Callable[[WorkerKey, bool], None] = lambda worker, failed: None
    """Which prefill worker a request has used, and whether it failed."""
    on_doubt: Callable[[], None] = lambda: None
    """Nothing that the worker has cached by now will be found any more."""
    on_mismatch: Callable[[SplitserveError], None] = lambda error: None
    """Somebody else answers at this worker's address."""


NOBODY_HEARS = LinkEvents()


class WorkerLink(Protocol):
    """The way to one worker process that answers. All calls from the event loop, `close` once."""

    @property
    def is_open(self) -> bool:
        """True while requests can be sent."""
        ...

    def submit(
        self,
        submit: worker_pb2.Submit,
        *,
        max_tokens: int,
        max_prompt_tokens: int = 0,
        listener: StreamListener = NOBODY,
    ) -> RequestStream:
        """Sends a request that may produce `max_tokens` over all choices, and score
        `max_prompt_tokens` of the prompt. Closing the stream cancels it at the worker.

        What this engine cannot do exactly as asked fails the stream with InvalidRequest that names
        it. Raises WorkerLost when the link is not open and InvalidRequest for an id in use.
        """
        ...

    async def close(self, reason: str) -> None:
        """Ends every request with WorkerLost and stays closed; idempotent."""
        ...


class WorkerAdapter(Protocol):
    """Links to the workers of one other engine."""

    def link(self, member: Member, events: LinkEvents, unread: UnreadBytes) -> WorkerLink | None:
        """The way to a decode worker that has joined; None: it is not one of this engine's.

        `unread` is the router's, of all its links.
        """
        ...

    def events_of(self, member: Member) -> EngineEventSource | None:
        """Where its KV events are to be had; None: nowhere, or it is not one of this engine's.
        Asked before `link`, for prefill workers as well."""
        ...
