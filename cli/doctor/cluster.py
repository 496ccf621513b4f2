"""What a pod sees of its cluster: its account and rights, the routers' name, and each router."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from pathlib import Path

from cli.doctor.finding import Check, Finding, broken, fine
from cli.doctor.rights import TIMEOUT_S, right_checks
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.dial.names import addresses_of
from cluster.errors import SplitserveError
from cluster.join_token import operators_token

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def cluster_checks(router: str, account: Path = ACCOUNT) -> list[Check]:
    """`router`: host:port of the routers, by the name of their Service."""
    checks = [Check("account", partial(_account, account))]
    if (account / "token").exists():
        checks += right_checks(account, os.environ)
    return [
        *checks,
        Check("dns", partial(_name, router)),
        Check("routers", partial(_routers, router)),
    ]


def _account(account: Path) -> Finding:
    if not (account / "token").exists():
        return fine("this pod has no service account's token, and asks the API server for nothing")
    try:
        namespace = (account / "namespace").read_text().strip()
        size = len((account / "token").read_bytes())
    except OSError as cause:
        return broken(
            f"the service account in {account} cannot be read: {cause.strerror}",
            "see the pod's securityContext: fsGroup, runAsUser",
        )
    if not size:
        return broken(f"{account / 'token'} is empty", "delete the pod: it gets a new one")
    return fine(f"a service account of the namespace {namespace}")


def _name(router: str) -> Finding:
    host = router.rpartition(":")[0]
    try:
        found = asyncio.run(addresses_of(host))
    except (socket.gaierror, OSError) as cause:
        return broken(
            f"nobody knows the name {host}: {cause}",
            "see the Service and the cluster's DNS: kubectl get endpointslices",
        )
    return fine(f"{host} is {', '.join(sorted(found))}")


def _routers(router: str) -> Finding:
    """Each address that the name has, or the one that is named."""
    host, _, port = router.rpartition(":")
    hint = "see the routers' logs, and the network policy of their fleet port"
    try:
        found = sorted(asyncio.run(addresses_of(host)))
        told = asyncio.run(_asked([f"{address}:{port}" for address in found]))
    except (SplitserveError, OSError) as failure:
        return broken(f"routers cannot be asked: {failure}", hint)
    text = "; ".join(f"{address} {word}" for address, (word, _) in told.items())
    return fine(text) if all(good for _, good in told.values()) else broken(text, hint)


async def _asked(addresses: list[str]) -> dict[str, tuple[str, bool]]:
    """What each says, and whether that is well."""
    dialer = GrpcDialer(operators_token())

    async def ask(address: str) -> tuple[str, bool]:
        link = dialer.operator(address)
        try:
            members = (await link.members(timeout_s=TIMEOUT_S)).members
        except SplitserveError as failure:
            return f"does not answer: {failure.message}", False
        finally:
            await link.close()
        ready = sum(state.state == "ready" for state in members)
        return f"has {ready} of {len(members)} workers ready", True

    return dict(zip(addresses, await asyncio.gather(*map(ask, addresses)), strict=True))
