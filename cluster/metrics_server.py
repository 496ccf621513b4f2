"""A process's Prometheus page, served from a thread of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, start_http_server

from cluster.errors import ConfigError


class MetricsServer:
    """Serves `registry` at http://host:port/metrics from construction until `close`."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        """Port 0 takes a free one. Raises ConfigError when the port cannot be had."""
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as cause:
            raise ConfigError(
                f"metrics cannot listen on {host}:{port} ({cause.strerror}); choose a free port"
            ) from cause
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stops serving; idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def start_metrics_server(host: str, port: int, registry: CollectorRegistry) -> MetricsServer:
    """Starts serving and returns the running server; its `port` is the bound one."""
    return MetricsServer(host, port, registry)
