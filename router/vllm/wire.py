"""What is asked of a vLLM server over HTTP: short answers, and one stream for each request.

The real one is `http_wire.py`; a test has a server of its own behind the same methods.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from cluster.errors import InternalError, InvalidRequest, NotReady, SplitserveError, WorkerLost
from cluster.terminal_text import plain

MAX_SAID_CHARS = 300
SentHeaders = Mapping[str, str]
NO_HEADERS: SentHeaders = MappingProxyType({})
_CLIENTS_FAULT = (400, 413, 422)
_NOT_NOW = (408, 429, 503)
_LOCKED = (401, 403)


@dataclass(frozen=True, slots=True)
class VllmAnswer:
    """A whole answer; no more than the wire's bound of it was read."""

    status: int
    body: bytes


class VllmWire(Protocol):
    """The way to one server. From the event loop only; `close` once.

    All raise WorkerLost where the server cannot be reached or breaks off, and where what it sends
    is longer than the bounds allow. Being cancelled closes the connection, by which vLLM aborts
    what it does for it.
    """

    async def get(self, path: str, *, timeout_s: float) -> VllmAnswer:
        """Raises WorkerLost when no whole answer comes in that time."""
        ...

    async def post(
        self,
        path: str,
        body: dict[str, Any],
        *,
        timeout_s: float | None,
        headers: SentHeaders = NO_HEADERS,
    ) -> VllmAnswer:
        """Without a limit whoever calls bounds it. `headers`: beside the wire's own."""
        ...

    def stream(
        self, path: str, body: dict[str, Any], headers: SentHeaders = NO_HEADERS
    ) -> AsyncGenerator[list[bytes], None]:
        """The data of server-sent events, those that arrived together in one list. Whoever calls
        bounds each wait, and closes the generator. Raises what `check` does before the first."""
        ...

    async def close(self) -> None:
        """Breaks all connections."""
        ...


def check(answer: VllmAnswer, who: str) -> VllmAnswer:
    """The answer, where it is a good one. Raises the error that its status stands for."""
    if answer.status == 200:
        return answer
    said = said_in(answer.body)
    if answer.status in _CLIENTS_FAULT:
        raise InvalidRequest(said)
    raise _error_of(answer.status, f"{who} answered {answer.status}: {said}")


def said_in(body: bytes) -> str:
    """vLLM's own message, or the first words of what it sent; printable, and short."""
    try:
        said = msgspec.json.decode(body, type=dict[str, Any])
        inner = said.get("error", said)
        text = str(inner.get("message", inner) if isinstance(inner, dict) else inner)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body[:MAX_SAID_CHARS].decode(errors="replace")
    return plain(text[:MAX_SAID_CHARS]) or "nothing"


def _error_of(status: int, message: str) -> SplitserveError:
    if status in _NOT_NOW:
        return NotReady(message)
    if status in _LOCKED:
        return InternalError(f"{message}; give the router the key by --vllm-key-file")
    return WorkerLost(message)
