"""Prometheus' port of a router: beside the control plane, where no stranger comes.

GET /metrics             what is counted, without a token
GET /live, /health       as at the clients' port
"""

from __future__ import annotations

from starlette.routing import Route, Router

from cluster.errors import ConfigError
from cluster.process.background import OnLoss
from cluster.process.loop_share import LoopShare
from router.api.http.server import HttpServer
from router.api.status_endpoints import StatusEndpoints
from router.front.limits import DoorLimits

MAX_CONNECTIONS = 64
READER_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 10.0
_LIMITS = DoorLimits(
    max_body_bytes=1,
    request_timeout_s=REQUEST_TIMEOUT_S,
    max_connections=MAX_CONNECTIONS,
    reserved_connections=0,
    ping_interval_s=0,
    reader_timeout_s=READER_TIMEOUT_S,
)


def metrics_server(
    status: StatusEndpoints, host: str, port: int, *, on_loss: OnLoss, share: LoopShare
) -> HttpServer:
    """Listens at once. Raises ConfigError when the port cannot be had."""
    routes = [
        Route("/metrics", status.metrics, methods=["GET"]),
        Route("/live", status.live, methods=["GET"]),
        Route("/health", status.health, methods=["GET"]),
    ]
    app = Router(routes, redirect_slashes=False)
    try:
        return HttpServer(app, host, port, _LIMITS, on_loss=on_loss, share=share)
    except ConfigError as cause:
        raise ConfigError(
            f"--fleet-metrics-port: {cause.message}", param="fleet_metrics_port"
        ) from cause
