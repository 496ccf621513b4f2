"""`splitserve serve --launcher kubernetes`: the pools of a release are started, watched, and put
back to their sizes at the end. The release itself, with its router, model and options, is helm's.

exit code as of `serve` (serve_run.py), and 3 where no API server answers, 4 where it refuses
"""

from __future__ import annotations

from collections.abc import Mapping

from cli.exit_code import ExitCode
from cli.release import at_release
from cli.release_view import ReleaseView
from cli.serve_run import ServeRun
from cli.terminal import say
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.option_sources import Origin
from cluster.options import ResolvedOption
from cluster.scaling.kubernetes_api import DeploymentsApi
from cluster.supervisor.failure import ProcessFailure
from cluster.supervisor.release.release_pools import ReleasePools

_OWN = frozenset({"launcher", "kubernetes", *Role})
"""Options of `serve` that a release on Kubernetes takes; all others are in its values."""


def serve_release(options: Mapping[str, ResolvedOption]) -> ExitCode:
    """Serves to its end. `options`: of `splitserve serve`, with whoever has said each. Raises
    ConfigError."""
    named = options["kubernetes"].value
    if not named:
        raise ConfigError(
            "--launcher kubernetes serves the pools of an installed release: name it with "
            "--kubernetes [NAMESPACE/]RELEASE (`helm list` has it)",
            param="kubernetes",
        )
    said = {name: each for name, each in options.items() if each.origin is not Origin.DEFAULT}
    _refuse_what_is_helms(named, said)
    sizes = {role: said[role].value for role in Role if role in said}

    async def work(api: DeploymentsApi, release: str) -> ExitCode:
        return await ServeRun(ReleaseFleet(api, release, named, sizes)).run()

    return at_release(named, work)


def refuse_release(options: Mapping[str, ResolvedOption]) -> None:
    """Raises ConfigError where a release is named, and another launcher is to serve."""
    if (named := options["kubernetes"]).value is not None:
        raise ConfigError(
            f"{named.source} names the release {named.value}, and --launcher is "
            f"{options['launcher'].value}; say --launcher kubernetes, or leave it out",
            param="kubernetes",
        )


class ReleaseFleet:
    """See ServedFleet."""

    def __init__(
        self, api: DeploymentsApi, release: str, named: str, sizes: Mapping[Role, int]
    ) -> None:
        """`named`: the release with its namespace, as it was given."""
        self._view = ReleaseView(named)
        self._pools = ReleasePools(api, release, sizes, self._view)

    async def start(self) -> None:
        """See ServedFleet. Raises ScaleRefused and WorkerLost as well."""
        await self._pools.start()

    def began(self) -> None:
        """See ServedFleet."""
        self._view.all_ready(self._pools.sizes_at_the_end)

    async def until_lost(self) -> ProcessFailure:
        """See ServedFleet."""
        return await self._pools.until_lost()

    async def stop(self, failure: ProcessFailure | None) -> None:
        """See ServedFleet. Pods that end drain, as long as their graces are."""
        try:
            if self._pools.sizes_at_the_end:
                say("pools go back to their sizes (Ctrl-C again: do not wait for their pods)")
            await self._pools.stop()
        finally:
            self._view.close()

    def kill(self) -> None:
        """See ServedFleet."""
        self._pools.kill()


def _refuse_what_is_helms(named: str, said: Mapping[str, ResolvedOption]) -> None:
    foreign = [each for name, each in said.items() if name not in _OWN]
    if foreign:
        raise ConfigError(
            f"{', '.join(each.source for each in foreign)}: the pods of {named} have what its "
            "values say (`helm upgrade`), and --launcher kubernetes takes --prefill and --decode "
            "alone; leave it out",
            param=foreign[0].spec.name,
        )
