"""A process's Prometheus page, from a thread of its own: it answers while the loop stands.

/metrics    what is counted
a probe     200 and "ok", or 503 and why not: what Kubernetes asks, over plain HTTP
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from cluster.errors import ConfigError
from cluster.process.thread_call import in_thread

MAX_READERS = 16
"""Each has a thread."""
READER_TIMEOUT_S = 5.0
"""Of its silence."""


Probe = Callable[[], str | None]
"""Why not, in words; None: it is so. Called from other threads than the loop's."""
NO_PROBES: Mapping[str, Probe] = MappingProxyType({})


class MetricsServer:
    """Listens at http://host:port/metrics from construction; `serve` it, again whenever that ends,
    and `close` once nobody does. From the event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        probes: Mapping[str, Probe] = NO_PROBES,
    ) -> None:
        """Port 0 takes a free one. `probes` by path, such as /live. Raises ConfigError when the
        port cannot be had."""
        page = _with_probes(make_wsgi_app(registry), probes)
        try:
            self._server = make_server(host, port, page, _FewReaders, _SilentHandler)
        except OSError as cause:
            raise ConfigError(
                f"metrics cannot listen on {host}:{port} ({cause.strerror}); choose a free port"
            ) from cause
        self.port: int = self._server.server_port

    async def serve(self) -> None:
        """Answers until it is cancelled. Raises what ended its thread."""
        try:
            await in_thread("metrics", self._server.serve_forever)
        except asyncio.CancelledError:
            await in_thread("metrics-end", self._server.shutdown)  # it waits half a second
            raise

    def close(self) -> None:
        """Gives the port back; idempotent."""
        self._server.server_close()


def _with_probes(metrics: Any, probes: Mapping[str, Probe]) -> Any:
    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        probe = probes.get(environ["PATH_INFO"])
        if probe is None:
            return metrics(environ, start_response)
        why_not = probe()
        status = "200 OK" if why_not is None else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{why_not or 'ok'}\n".encode()]

    return answer


class _FewReaders(ThreadingWSGIServer):
    """Who comes while there are too many is served, and the one that came first is cut: a scrape
    takes milliseconds, so what is there for long is no scrape."""

    request_queue_size = 4 * MAX_READERS  # with five, who comes in a crowd waits for seconds

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lock = threading.Lock()
        self._readers: dict[Any, None] = {}
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """From the thread that accepts."""
        with self._lock:
            if len(self._readers) >= MAX_READERS:
                first = next(iter(self._readers))
                del self._readers[first]
                with contextlib.suppress(OSError):  # its own thread has closed it just now
                    first.shutdown(socket.SHUT_RDWR)
            self._readers[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """From the reader's thread, at its end."""
        with self._lock:
            self._readers.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that was cut, or has left, is no news."""


class _SilentHandler(WSGIRequestHandler):
    timeout = READER_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:
        """A scrape is no news."""
