"""gRPC as this fleet speaks it: channels, servers with health and reflection, typed errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

from cluster.errors import (
    Cancelled,
    ConfigError,
    DeadlineExceeded,
    InternalError,
    SplitserveError,
    WorkerLost,
    from_code,
    status_of,
)
from cluster.health import Health
from cluster.retry_after import Draw, no_jitter, retry_after_s
from cluster.token_channel import TokenChannel

ERROR_DOMAIN = "splitserve"
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A prompt of a million tokens is 4 MiB; digests of its blocks 90 MiB, but those come per chunk."""
MAX_STATUS_BYTES = 1024

_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 1_000),  # a silent partition is found within three seconds
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),  # what counts for a ping; gRPC's default is a minute
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]
_SERVER_OPTIONS = [
    *_KEEPALIVE,
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.so_reuseport", 0),  # a taken port is an error, not a shared one
]
_OWN_PORT = [("grpc.http2.max_ping_strikes", 0)]
_CHANNEL_OPTIONS = [
    *_KEEPALIVE,
    ("grpc.enable_retries", 0),  # retries are the router's decision
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),  # a restarted peer gets a fresh connection
    ("grpc.enable_http_proxy", 0),
]


class ChannelMaker(Protocol):
    """How connections are made, where not in the clear."""

    def open(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        """To host:port; the caller closes it."""


def open_channel(
    address: str, *, token: str | None = None, secure: ChannelMaker | None = None
) -> grpc.aio.Channel:
    """A channel to `host:port`; connects on first use. The caller closes it. `token`: of the fleet,
    shown with every call."""
    if secure is None:
        channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
    else:
        channel = secure.open(address, _CHANNEL_OPTIONS)
    return channel if token is None else TokenChannel(channel, token)


async def abort(
    context: grpc.aio.ServicerContext,
    error: SplitserveError,
    draw: Draw = no_jitter,
) -> NoReturn:
    """Ends the call with the error's gRPC status, its message, its stable code and, where waiting
    helps, a wait, which is drawn for each stranger. The error loses its trace."""
    row = status_of(without_trace(error))
    facts = {name: f"{value:g}" for name, value in (error.details or {}).items()}
    info = error_details_pb2.ErrorInfo(reason=row.code, domain=ERROR_DOMAIN, metadata=facts)
    details = [_packed(info)]
    wait_s = retry_after_s(error, draw)
    if wait_s is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(math.ceil(wait_s * 1000))
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    code = getattr(grpc.StatusCode, row.grpc)
    message = _fitting(error.message)
    status = status_pb2.Status(code=code.value[0], message=message, details=details)
    await context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort returned")


AnyError = TypeVar("AnyError", bound=BaseException)


def without_trace(error: AnyError) -> AnyError:
    """The error alone. Its trace, and those of what it came from, are frames, which hold all that
    they worked with: whoever keeps it would keep that, and where a frame in turn holds who keeps
    it, until the collector of cycles comes."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def _fitting(message: str) -> str:
    """A status travels in a header of 8 KiB, twice and up to three times its size: one that does
    not fit would reach the caller as a broken stream."""
    encoded = message.encode(errors="replace")
    short = encoded[:MAX_STATUS_BYTES].decode(errors="ignore")
    return short if len(encoded) <= MAX_STATUS_BYTES else f"{short}..."


def _packed(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def error_of(failure: grpc.aio.AioRpcError) -> SplitserveError:
    """The error behind a failed call: the peer's own, or what the transport says of it."""
    status = rpc_status.from_call(failure)
    if status is not None:
        info = error_details_pb2.ErrorInfo()
        for detail in status.details:
            if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                detail.Unpack(info)
                return from_code(info.reason, status.message)
    message = f"{failure.code().name.lower()}: {failure.details()}"
    if failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(message)
    if failure.code() is grpc.StatusCode.CANCELLED:
        return Cancelled(message)
    if failure.code() is grpc.StatusCode.UNAVAILABLE:
        return WorkerLost(message)
    return InternalError(message)


class RpcServer:
    """One gRPC port with health (`""` is liveness, a service's name its readiness) and reflection.

    Call `add` for each service, `start`, then `set_ready(True)` once requests may come; `set_ready`
    may be called any number of times, and does not concern services that are always ready. All
    calls from the event loop's thread.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        limits: Sequence[tuple[str, int]] = _OWN_PORT,
        guards: Sequence[grpc.aio.ServerInterceptor] = (),
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        """`limits` and `guards` of a port that strangers reach: those of PublicPort. Without
        `credentials` it speaks in the clear."""
        self._host = host
        self._port = port
        self._credentials = credentials
        options = dict([*_SERVER_OPTIONS, *limits])  # of a name given twice gRPC takes the first
        self._server = grpc.aio.server(options=list(options.items()), interceptors=guards)
        self._names: list[str] = []
        self._always_ready: list[str] = []
        self._health = Health()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    def add(
        self,
        add_to_server: Callable[[Any, Any], None],
        servicer: Any,
        name: str,
        *,
        always_ready: bool = False,
    ) -> None:
        """Registers a servicer under its full service name, such as `splitserve.v1.Inference`.

        `always_ready`: it serves from `start` to `stop`, whatever `set_ready` says of the others.
        """
        add_to_server(servicer, self._server)
        (self._always_ready if always_ready else self._names).append(name)

    async def start(self) -> int:
        """Listens and returns the port. Raises ConfigError when it cannot be had."""
        added = (*self._names, *self._always_ready)
        names = (*added, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        port = self._listen()
        await self._server.start()
        for name in ("", *self._always_ready):
            self._health.set(name, serving=True)
        await self.set_ready(False)
        return port

    def _listen(self) -> int:
        address = f"{self._host}:{self._port}"
        bound: int
        try:
            if self._credentials is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, self._credentials)
        except RuntimeError as cause:
            raise ConfigError(f"gRPC cannot listen on {address}; choose a free port") from cause
        return bound

    async def set_ready(self, ready: bool) -> None:
        """Sets the health of every added service that is not always ready; whoever watches one
        hears of it where it is news."""
        for name in self._names:
            self._health.set(name, serving=ready)

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls, gives the running ones `grace_s` seconds, then cancels them."""
        for name in (*self._names, *self._always_ready):
            self._health.set(name, serving=False)
        await self._server.stop(grace_s)
