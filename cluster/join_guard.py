"""Who may call a process of a fleet: whoever shows a join token that it admits, before a message is
read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from cluster.errors import WrongToken
from cluster.join_token import JOIN_TOKEN, admitted_tokens, is_admitted
from cluster.rpc import abort
from cluster.token_channel import TOKEN_KEY

OPEN_TO_ALL = frozenset({health.SERVICE_NAME, reflection.SERVICE_NAME})
"""They tell which services there are, and whether they are ready."""
_MAKERS = {
    False: grpc.stream_unary_rpc_method_handler,
    True: grpc.stream_stream_rpc_method_handler,
}
"""By whether answers are a stream. Of messages they take a stream, which is not read."""


def join_guards(open_to: Collection[str] = ()) -> Sequence[grpc.aio.ServerInterceptor]:
    """For a server of this process: none where it has no token. `open_to`: full names of services
    that know their callers otherwise."""
    tokens = admitted_tokens()
    return [JoinGuard(tokens, OPEN_TO_ALL | set(open_to))] if tokens else []


class JoinGuard(grpc.aio.ServerInterceptor):
    """Refuses calls without one of the tokens, to all services but those named."""

    def __init__(self, tokens: Iterable[str], open_to: Collection[str]) -> None:
        self._tokens = tuple(tokens)
        self._open_to = open_to

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """The method, or one that refuses in its place; None for one that is not there."""
        handler = await continuation(details)
        if handler is None or self._is_open(details.method):
            return handler
        shown = _token_in(details.invocation_metadata)
        if is_admitted(shown, self._tokens):
            return handler
        return _MAKERS[handler.response_streaming](_refusing(shown))

    def _is_open(self, method: str) -> bool:
        """`method` as /service/method."""
        return method.strip("/").partition("/")[0] in self._open_to


def _token_in(metadata: Iterable[tuple[str, str | bytes]]) -> bytes:
    value = next((value for name, value in metadata if name == TOKEN_KEY), b"")
    return value.encode(errors="replace") if isinstance(value, str) else value


def _refusing(shown: bytes) -> Callable[[Any, Any], Awaitable[None]]:
    what = "the join token of another fleet" if shown else "no join token"
    refusal = f"the caller shows {what}: give all processes of a fleet one {JOIN_TOKEN}"

    async def refuse(_requests: Any, context: Any) -> None:
        await abort(context, WrongToken(refusal))

    return refuse
