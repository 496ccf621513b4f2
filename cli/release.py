"""A release of the chart, as a command reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cli.exit_code import ExitCode
from cli.terminal import complain
from cluster.errors import LoginLost, WorkerLost
from cluster.scaling.kubernetes_api import ApiServer, DeploymentsApi
from cluster.scaling.scaler import ScaleRefused


def at_release(named: str, work: Callable[[DeploymentsApi, str], Awaitable[ExitCode]]) -> ExitCode:
    """What `work` makes of the API and the release; REFUSED and UNREACHABLE are told here."""
    try:
        return asyncio.run(_connected(named, work))
    except ScaleRefused as refusal:
        complain(f"refused ({refusal.reason}): {refusal.message}")
        return ExitCode.REFUSED
    except LoginLost as failure:
        complain(failure.message, remedy="kubectl auth whoami")
        return ExitCode.UNREACHABLE
    except WorkerLost as failure:
        complain(failure.message, remedy="kubectl cluster-info")
        return ExitCode.UNREACHABLE


async def _connected(
    named: str, work: Callable[[DeploymentsApi, str], Awaitable[ExitCode]]
) -> ExitCode:
    namespace, _, release = named.rpartition("/")
    api = await ApiServer.opened(namespace)
    try:
        return await work(api, release)
    finally:
        await api.close()
