"""The entry point of a planner's process.

options checked -> scaler found -> metrics port listens -> turns until a signal
"""

from __future__ import annotations

import asyncio
import contextlib

from cluster.dial.grpc_dialer import GrpcDialer
from cluster.join_token import operators_token
from cluster.logs import configure_logging, get_logger
from cluster.metrics_server import MetricsServer
from cluster.planner_options import PlannerOptions
from cluster.process.background import Background
from cluster.process.end_limit import EndLimit
from cluster.process.loop_lag import LoopLag
from cluster.process.signals import StopRequests, listen_for_signals
from cluster.process.stopping import exit_code_of
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.kubernetes_api import ApiServer
from cluster.scaling.scaler import Scaler
from cluster.scaling.supervised import SupervisedScaler
from cluster.world import World
from planner.orders import SizeOrders
from planner.planner_metrics import PlannerMetrics
from planner.planning import Planning
from planner.pool_limits import limits_of
from planner.routers import Routers
from planner.sight import FleetEyes

SHUTDOWN_TIMEOUT_S = 10.0
_log = get_logger("planner")


def run(options: PlannerOptions) -> int:
    """Until a signal; the exit code. Raises ConfigError."""
    configure_logging("planner")
    return asyncio.run(_run(options, World(dialer=GrpcDialer(operators_token()))))


async def _run(options: PlannerOptions, world: World) -> int:
    limits = limits_of(options.pools)
    stop = StopRequests(EndLimit(SHUTDOWN_TIMEOUT_S).begin)
    async with contextlib.AsyncExitStack() as closers:
        closers.enter_context(listen_for_signals(stop))
        routers = Routers(options.router, world)
        closers.push_async_callback(routers.close)
        scaler = await _scaler_of(options, world)
        closers.push_async_callback(scaler.close)
        metrics = PlannerMetrics()
        orders = SizeOrders(
            *(routers, scaler),
            names_workers=options.kubernetes is None,
            is_dry_run=options.dry_run,
        )
        eyes = FleetEyes(routers, scaler, world.clock)
        planning = Planning(eyes, orders, limits, options.rules, metrics, world.clock)
        background = Background(stop.on_loss, clock=world.clock, sleep=world.sleep)
        closers.push_async_callback(background.close)
        lag = LoopLag()
        lag.publish(metrics.registry)
        lag.start()
        closers.push_async_callback(lag.close)
        probes = {"/live": lag.why_it_stands, "/ready": planning.why_not_ready}
        page = MetricsServer(options.host, options.metrics_port, metrics.registry, probes)
        closers.callback(page.close)
        background.keep("metrics", page.serve)
        background.need("planning", planning.run(world.sleep))
        _log.info("plans", pools=options.pools, dry_run=options.dry_run, metrics_port=page.port)
        await stop.drain.wait()
        stop.on_close()
    return exit_code_of(stop)


async def _scaler_of(options: PlannerOptions, world: World) -> Scaler:
    """Raises ConfigError where no cluster is configured."""
    if options.kubernetes is not None:
        namespace, _, release = options.kubernetes.rpartition("/")
        return KubernetesScaler(await ApiServer.opened(namespace), release)
    return SupervisedScaler(world.dialer, _first_of(options.router))


def _first_of(routers: str) -> str:
    """A supervisor tells one router, which it has started."""
    return routers.split(",")[0].strip().removeprefix("dns+")
