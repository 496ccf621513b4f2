"""The page's own listener: never a port of clients.

made -> start: its address is bound, it answers -> stop: watchers are cut, then it is closed
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.config import RouterOptions
from cluster.errors import ConfigError
from cluster.join_token import admitted_tokens
from cluster.membership.reach import is_loopback
from cluster.process.background import Background, OnLoss
from cluster.process.loop_share import LoopShare
from cluster.tls.clients import clients_certificates
from cluster.world import World
from router.api.http.server import HttpServer
from router.page.door import DoorRules, PageDoor
from router.page.history import History
from router.page.page_app import PageApp, page_limits
from router.page.survey import PageSources, PageSurroundings, Survey
from router.page.watchers import Watchers


class PageListener:
    """Of one router. From the event loop; `start` once, then `stop` once."""

    def __init__(
        self,
        options: RouterOptions,
        sources: PageSources,
        model: str,
        world: World,
        share: LoopShare,
    ) -> None:
        """`sources`: what is shown. `share`: of the loop, with all who work on it."""
        self._options = options
        self._sources = sources
        self._model = model
        self._world = world
        self._share = share
        self._http: HttpServer
        self._background: Background
        self._watchers: Watchers

    @classmethod
    def of(
        cls,
        options: RouterOptions,
        sources: PageSources,
        model: str,
        world: World,
        share: LoopShare,
    ) -> PageListener | None:
        """None where none is asked for."""
        if options.page.page_port is None:
            return None
        return cls(options, sources, model, world, share)

    @property
    def url(self) -> str:
        """Once it has started."""
        scheme = "https" if self._has_tls else "http"
        return f"{scheme}://{self._options.page.page_host}:{self._http.port}/"

    @property
    def num_watchers(self) -> int:
        """Once it has started."""
        return self._watchers.num_watchers

    async def start(self, is_draining: Callable[[], bool], on_loss: OnLoss) -> None:
        """Answers from now on; `on_loss` hears when it ends and nobody has asked it to. Raises
        ConfigError when the port cannot be had."""
        world = self._world
        self._background = Background(on_loss, clock=world.clock, sleep=world.sleep)
        metrics = self._sources.metrics
        history = History(metrics.ttft, metrics.inter_token)
        around = PageSurroundings(self._model, is_draining, world.clock, self._share)
        survey = Survey(self._sources, around, history)
        self._watchers = Watchers(survey, self._background, world.sleep)
        self._http = self._new_server(on_loss)
        await self._http.start()
        self._background.keep("page history", lambda: history.keep(world.sleep))

    async def stop(self) -> None:
        """All who watch are cut, and told nothing. After a start that was well."""
        self._watchers.close()
        await self._http.stop()
        await self._background.close()

    def _new_server(self, on_loss: OnLoss) -> HttpServer:
        page = self._options.page
        assert page.page_port is not None
        limits = page_limits(self._options.header_timeout_s)
        cookie = f"splitserve_page_{page.page_port}"
        rules = DoorRules(admitted_tokens(), self._is_on_loopback, cookie)
        door = PageDoor(rules, self._world.clock)
        app = PageApp(door, self._watchers, limits, self._share)
        tls = clients_certificates(self._options.tls) if self._has_tls else None
        try:
            return HttpServer(
                *(app, page.page_host, page.page_port, limits),
                on_loss=on_loss,
                share=self._share,
                tls=tls,
            )
        except ConfigError as cause:
            raise ConfigError(f"--page-port: {cause.message}", param="page_port") from cause

    @property
    def _is_on_loopback(self) -> bool:
        return is_loopback(self._options.page.page_host)

    @property
    def _has_tls(self) -> bool:
        """On loopback nobody reads along, and no certificate is for that name."""
        return self._options.tls.tls_cert is not None and not self._is_on_loopback
