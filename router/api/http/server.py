"""uvicorn, run inside our own process: our socket, our signals, our limits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn

from cluster.errors import ConfigError
from cluster.process.background import Background, OnLoss
from cluster.process.loop_share import LoopShare
from cluster.tls.http import ListenerContext
from cluster.tls.watched import WatchedCertificates
from router.api.http.asgi import App
from router.api.http.connection import connections_of
from router.api.http.protocol import protocol_with
from router.api.http.read_turns import ReadTurns
from router.front.limits import DoorLimits

BACKLOG = 2048
KEEP_ALIVE_S = 75
"""Longer than the usual 60 s of proxies, so that they and not we close an idle connection."""
HANDSHAKE_TIMEOUT_S = 10.0
"""Of TLS: as long as a client may take to send the head of a request."""
LAST_ANSWERS_S = 2
"""After the drain: how long answers under way may take before their tasks are cancelled."""


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with a limit of our own for handshakes."""
        loop, config = asyncio.get_running_loop(), self.config
        connection = partial(
            cast(Any, config.http_protocol_class),
            config=config,
            server_state=self.server_state,
            app_state={},
        )
        limit_s = None if config.ssl is None else HANDSHAKE_TIMEOUT_S
        self.servers = [
            await loop.create_server(
                connection,
                sock=each,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=limit_s,
            )
            for each in sockets or ()
        ]
        self.started = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's business, not the server's."""
        yield


class HttpServer:
    """Serves from `start` until `stop`. All calls from the event loop's thread."""

    def __init__(
        self,
        app: App,
        host: str,
        port: int,
        limits: DoorLimits,
        *,
        on_loss: OnLoss,
        share: LoopShare | None = None,
        tls: WatchedCertificates | None = None,
    ) -> None:
        """Listens at once; `on_loss` hears when it ends and nobody has asked it to. `share`: of the
        loop, with all who work on it. `tls`: of its connections, whose handshakes count as
        connections do. Raises ConfigError when the port cannot be had."""
        self._max_connections = limits.max_connections + limits.reserved_connections
        listener = None if tls is None else ListenerContext(tls, self._has_room)
        self._tls = listener
        self._turns = ReadTurns(share or LoopShare(clock=limits.clock))
        self._socket = listen(host, port)
        config = uvicorn.Config(
            app,
            http=cast(Any, connections_of(protocol_with(limits), self._turns)),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # the front door answers and logs what goes wrong
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=LAST_ANSWERS_S,
            ssl_context_factory=None if listener is None else lambda _config, _default: listener,
        )
        self._server = _Server(config)
        self._background = Background(on_loss)
        self._has_begun = False
        self._is_stopping = False
        self._has_ended = asyncio.Event()

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._socket.getsockname()[1])

    @property
    def num_connections(self) -> int:
        """Open connections."""
        return len(self._server.server_state.connections)

    @property
    def num_handshakes(self) -> int:
        """Of TLS, under way: connections to be."""
        return 0 if self._tls is None else self._tls.num_handshakes

    async def start(self) -> None:
        """Begins to answer; returns once it does."""
        self._has_begun = True
        self._background.keep("reads that wait", self._turns.run)
        self._background.need("http", self._serve())
        while not self._server.started and not self._has_ended.is_set():
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Closes the listener, lets answers under way end, closes connections; idempotent."""
        self._is_stopping = True
        self._server.should_exit = True
        if self._has_begun:
            await self._has_ended.wait()
        await self._background.close()
        self._socket.close()

    def _has_room(self, num_handshakes: int) -> bool:
        return num_handshakes + self.num_connections < self._max_connections

    async def _serve(self) -> None:
        """Returns where nobody has asked for it."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._has_ended.set()
        if self._is_stopping:
            await asyncio.Event().wait()  # `stop` closes the background


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one. Raises ConfigError naming the remedy."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as cause:
        raise ConfigError(f"HTTP cannot listen on {host}:{port}: {cause.strerror}") from cause
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as cause:
        bound.close()
        raise ConfigError(
            f"HTTP cannot listen on {host}:{port} ({cause.strerror}); choose another port"
        ) from cause
    bound.setblocking(False)
    return bound
