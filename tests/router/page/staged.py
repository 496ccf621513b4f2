"""A page with a plane behind it: a real listener, and members that nobody needs to run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from cluster.common_options import PageOptions, TlsOptions
from cluster.config import RouterOptions
from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.process.background import Loss
from cluster.process.loop_share import LoopShare
from cluster.world import World
from router.control.plane import FleetPlane
from router.fleet.member import FleetMember
from router.page.history import History
from router.page.listener import PageListener
from router.page.survey import PageSurroundings, Survey
from tests.router.planes import member_of, running_plane

LOAD = EngineLoad(
    total_blocks=100,
    free_blocks=60,
    cached_blocks=20,
    active_blocks=10,
    exported_blocks=6,
    receiving_blocks=4,
    num_running=3,
    num_waiting=1,
    decode_step_ms=12.5,
)


@dataclass
class StagedPage:
    """A page, and what a test may change of its surroundings."""

    listener: PageListener
    is_draining: bool = False

    @property
    def url(self) -> str:
        return self.listener.url


def lasting_plane() -> AbstractAsyncContextManager[FleetPlane]:
    """Its members need not beat."""
    return running_plane(worker_lease_s=1e6)


@asynccontextmanager
async def page_of(
    plane: FleetPlane,
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    tls: TlsOptions | None = None,
    world: World | None = None,
) -> AsyncIterator[StagedPage]:
    page = PageOptions(page_port=port, page_host=host)
    options = RouterOptions(page=page, tls=tls or TlsOptions())
    losses = list[Loss]()
    listener = PageListener.of(options, plane, "smollm2", world or World(), LoopShare())
    assert listener is not None
    staged = StagedPage(listener)
    await listener.start(lambda: staged.is_draining, losses.append)
    try:
        yield staged
    finally:
        await listener.stop()
    assert losses == []


async def joined(plane: FleetPlane, role: Role, worker_id: str, load: EngineLoad = LOAD) -> None:
    """A worker that has said how it is; nobody listens at its address."""
    member = member_of(role, worker_id)
    await plane.store.join(member)
    plane.store.report(member.key, load)


def member(plane: FleetPlane, worker_id: str) -> FleetMember:
    return next(item for item in plane.fleet.members if item.key.worker_id == worker_id)


def survey_of(plane: FleetPlane, share: LoopShare | None = None) -> Survey:
    world = World()
    around = PageSurroundings("smollm2", lambda: False, world.clock, share or LoopShare())
    return Survey(plane, around, History(plane.metrics.ttft, plane.metrics.inter_token))
