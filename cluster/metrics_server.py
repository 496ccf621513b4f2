"""A process's Prometheus page, from a thread of its own: it answers while the loop stands."""

from __future__ import annotations

import asyncio
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from cluster.errors import ConfigError
from cluster.process.thread_call import in_thread


class MetricsServer:
    """Listens at http://host:port/metrics from construction; `serve` it, again whenever that ends,
    and `close` once nobody does. From the event loop."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        """Port 0 takes a free one. Raises ConfigError when the port cannot be had."""
        page = make_wsgi_app(registry)
        try:
            self._server = make_server(host, port, page, ThreadingWSGIServer, _SilentHandler)
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


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """A scrape is no news."""
