"""`splitserve serve` on this machine or on Ray: ports, a plan, the model, then the processes, until
Ctrl-C or SIGTERM (serve_run.py). On Kubernetes: serve_release.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from pathlib import Path

from cli.exit_code import ExitCode
from cli.fleet_view import FleetView
from cli.progress_view import ProgressView
from cli.serve_run import ServeRun
from cli.terminal import say
from cluster.cache_heirs import CacheHeirs
from cluster.config import RouterOptions, ServeOptions
from cluster.dial.dialer import Dialer
from cluster.errors import ConfigError, DiskFull, PlaceLost
from cluster.home import default_home
from cluster.join_token import JOIN_TOKEN, fleets_token
from cluster.launcher.local import LocalLauncher
from cluster.launcher.protocol import ProcessSpec
from cluster.locks import check_router, needs_fleet_port, warning_of_strangers
from cluster.models.cache.store import ModelStore
from cluster.models.drafter_source import check_drafter, local_drafter_source
from cluster.process.background import Loss
from cluster.process.free_memory import free_memory_share
from cluster.process.own_cores import available_cores
from cluster.supervisor.failure import ProcessFailure
from cluster.supervisor.fleet import Machine, plan_fleet, warning_of_shared_gpus
from cluster.supervisor.fleet_report import FleetReport
from cluster.supervisor.news import News, Warned
from cluster.supervisor.place import FleetPlace, place_of
from cluster.supervisor.pool import pool_sizes
from cluster.supervisor.pools_for_model import with_pools_for
from cluster.supervisor.ports import PortClaims
from cluster.supervisor.reserve import Reserve
from cluster.supervisor.sizing import Sizing
from cluster.supervisor.supervisor import Supervisor
from cluster.supervisor.worker_reach import fleet_host_of, reach_on

STOP_SLACK_S = 5.0
"""What a process may need beyond its drain timeout before it is killed."""
_FAILED_START_GRACE_S = 2.0


def serve_fleet(options: ServeOptions) -> ExitCode:
    """Runs the fleet to its end. Raises SplitserveError for what is wrong before any process."""
    os.environ[JOIN_TOKEN] = fleets_token()  # for its children, and for itself
    options = with_claimed_ports(options)
    check_router(options.router)
    check_adapters(options)
    if warning := warning_of_strangers(options.router):
        say(f"warning: {warning}")
    log_dir = _log_dir(options.log_dir)
    with place_of(options) as place:
        return _serve_at(place, log_dir)


def check_adapters(options: ServeOptions) -> None:
    """A worker goes on without a folder that it cannot read, which may come back; who starts a
    fleet here has named one that is there. Raises ConfigError."""
    folder = options.engine.adapters
    if options.launcher == "local" and folder and not Path(folder).expanduser().is_dir():
        raise ConfigError(f"there is no folder {folder} to load adapters from", param="adapters")


def _serve_at(place: FleetPlace, log_dir: Path) -> ExitCode:
    options = place.options
    plan_fleet(options, place.machine)  # what is wrong with it is said before anything is fetched
    draft = local_drafter_source(options.engine.speculation_wish)
    with ProgressView() as progress:
        card = ModelStore().resolve(options.model.model, progress.bytes_of("model"))
    if draft is not None:
        check_drafter(draft, card)
    options = with_pools_for(card, options)
    stages = plan_fleet(options, place.machine)
    if warning := warning_of_shared_gpus(options, place.machine):
        say(f"warning: {warning}")
    return asyncio.run(_run(options, stages, log_dir, place))


async def _run(
    options: ServeOptions, stages: list[list[ProcessSpec]], log_dir: Path, place: FleetPlace
) -> ExitCode:
    return await ServeRun(SupervisedFleet(options, stages, log_dir, place)).run()


class SupervisedFleet:
    """See ServedFleet: processes that a supervisor here keeps alive, on this machine or on Ray."""

    def __init__(
        self,
        options: ServeOptions,
        stages: list[list[ProcessSpec]],
        log_dir: Path,
        place: FleetPlace | None = None,
    ) -> None:
        """`place`: None for this machine, without its GPUs."""
        place = place or FleetPlace(options, Machine(available_cores()), LocalLauncher)
        self._options = options
        self._stages = stages
        self._view = FleetView(options, log_dir)
        launcher = place.make_launcher(
            log_dir=log_dir,
            on_warning=lambda name, level, text: self._view(Warned(name, level, text)),
        )
        self._supervisor = Supervisor(launcher, self._tell)
        pools = pool_sizes(options)
        router = reach_on(options).router_address(options)
        self._reserve = Reserve(pools, _dialer, self._supervisor.end, self._tell)
        self._sizing = Sizing(
            options,
            place.machine,
            pools,
            self._supervisor,
            self._reserve,
            free_memory_share=free_memory_share,
            check_room=place.check_room,
            grace_s=options.router.drain_timeout_s + STOP_SLACK_S,
            hand_on=CacheHeirs(router, _dialer).take_over,
        )
        self._report = FleetReport(
            router,
            pools,
            lambda: self._reserve.spares,
            _dialer,
            sizes=self._sizing,
        )

    async def start(self) -> None:
        """See ServedFleet."""
        await self._supervisor.start(self._stages)
        await self._reserve.filled()

    def began(self) -> None:
        """See ServedFleet."""
        self._view.all_ready()
        self._report.begin()

    async def until_lost(self) -> ProcessFailure:
        """See ServedFleet."""
        await self._supervisor.lost.wait()
        assert self._supervisor.loss is not None
        return _failure_of(self._supervisor.loss)

    async def stop(self, failure: ProcessFailure | None) -> None:
        """See ServedFleet."""
        self._view.stopping_by_choice = failure is None
        grace_s = self._options.router.drain_timeout_s + STOP_SLACK_S
        if failure is not None and not self._serves_without_its_place:
            grace_s = _FAILED_START_GRACE_S
        try:
            await self._sizing.close()
            await self._reserve.close()
            await self._report.close()
            await self._supervisor.stop(grace_s)
        finally:
            self._supervisor.kill()
            self._view.close()

    def kill(self) -> None:
        """See ServedFleet."""
        self._supervisor.kill()

    def _tell(self, piece: News) -> None:
        """The terminal last: it may be gone."""
        self._reserve(piece)
        self._report(piece)
        self._view(piece)

    @property
    def _serves_without_its_place(self) -> bool:
        loss = self._supervisor.loss
        return loss is not None and isinstance(loss.cause, PlaceLost)


def _dialer() -> Dialer:
    """Imported once somebody is to be spoken to: the processes are started before."""
    from cluster.dial.grpc_dialer import GrpcDialer

    return GrpcDialer()


def _failure_of(loss: Loss) -> ProcessFailure:
    if isinstance(loss.cause, PlaceLost):
        return ProcessFailure(loss.name, "lost", loss.cause.message)
    return ProcessFailure(loss.name, "not kept alive any more", str(loss), "report this")


def with_claimed_ports(options: ServeOptions) -> ServeOptions:
    """With a free port for each that is 0 or missing. Raises ConfigError for one that is taken."""
    with PortClaims() as claims:
        return dataclasses.replace(options, router=_with_claimed(options, claims))


def _with_claimed(options: ServeOptions, claims: PortClaims) -> RouterOptions:
    router, aside, page = options.router, options.router.aside, options.router.page
    wanted = {
        "--port": (router.host, router.port),
        "--grpc-port": (router.host, router.grpc_port),
    }
    if router.fleet_port is not None or needs_fleet_port(router):
        aside = dataclasses.replace(aside, fleet_host=fleet_host_of(options))
        wanted["--fleet-port"] = (str(aside.fleet_host), router.fleet_port or 0)
    if aside.fleet_metrics_port is not None:
        at = aside.fleet_host or router.host
        wanted["--fleet-metrics-port"] = (at, aside.fleet_metrics_port)
    if page.page_port is not None:
        wanted["--page-port"] = (page.page_host, page.page_port)
    ports = claims.claim_all(wanted)
    return dataclasses.replace(
        router,
        port=ports["--port"],
        grpc_port=ports["--grpc-port"],
        fleet_port=ports.get("--fleet-port"),
        aside=dataclasses.replace(aside, fleet_metrics_port=ports.get("--fleet-metrics-port")),
        page=dataclasses.replace(page, page_port=ports.get("--page-port")),
    )


def _log_dir(wanted: str | None) -> Path:
    started = time.strftime("%Y%m%d-%H%M%S")
    path = Path(wanted).expanduser() if wanted else default_home() / "logs" / started
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / ".writable").touch()
        (path / ".writable").unlink()
    except OSError as cause:
        raise DiskFull(
            f"logs cannot be written to {path}: {cause.strerror}; choose another --log-dir"
        ) from cause
    return path
