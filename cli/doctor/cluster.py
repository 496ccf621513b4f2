"""What a pod sees of its cluster: its account and its rights, the routers' name, and each router.

The API server is asked over plain HTTPS, by the files that Kubernetes gives a pod: a router's image
has no client library.
"""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cli.doctor.finding import Check, Finding, broken, fine, poor
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.dial.names import addresses_of
from cluster.errors import SplitserveError
from cluster.join_token import operators_token

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 5.0
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Deed(NamedTuple):
    """What an account may or may not do in its namespace, and who wants it."""

    verb: str
    group: str
    resource: str
    wanted_by: str

    @property
    def name(self) -> str:
        """Such as "patch deployments/scale"."""
        return f"{self.verb} {self.resource}"


DEEDS = (
    Deed("list", "apps", "deployments", "splitserve scale and rollout"),
    Deed("patch", "apps", "deployments/scale", "splitserve scale"),
    Deed("patch", "apps", "deployments", "splitserve rollout pause, resume and undo"),
    Deed("list", "apps", "replicasets", "splitserve rollout"),
    Deed("list", "", "pods", "a router that looks for vLLM's pods"),
    Deed("watch", "", "pods", "a router that looks for vLLM's pods"),
)


def cluster_checks(router: str, account: Path = ACCOUNT) -> list[Check]:
    """`router`: host:port of the routers, by the name of their Service."""
    checks = [Check("account", partial(_account, account))]
    if (account / "token").exists():
        checks += [Check(f"rbac {deed.name}", partial(_may, deed, account)) for deed in DEEDS]
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


def _may(deed: Deed, account: Path) -> Finding:
    """A right that is missing matters to whoever wants it here, and to nobody else."""
    try:
        allowed = _reviewed(deed, account)
    except Exception as failure:  # of the network, TLS, or an answer that is none
        return broken(
            f"the API server does not say whether {deed.name} is allowed: {failure}",
            "see the cluster's network policies, and that the token is not expired",
        )
    if allowed:
        return fine(f"may {deed.name}")
    role = f"give its Role the verb {deed.verb} on {deed.resource}"
    return poor(f"may not {deed.name}", f"{deed.wanted_by} would need it from here: {role}")


def _reviewed(deed: Deed, account: Path) -> bool:
    import ssl

    import httpx

    resource, _, subresource = deed.resource.partition("/")
    attributes = {
        "namespace": (account / "namespace").read_text().strip(),
        "verb": deed.verb,
        "group": deed.group,
        "resource": resource,
        "subresource": subresource,
    }
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    answer = httpx.post(
        f"https://{host}:{port}{_REVIEWS}",
        json={
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        },
        headers={"Authorization": f"Bearer {(account / 'token').read_text().strip()}"},
        verify=ssl.create_default_context(cafile=str(account / "ca.crt")),
        timeout=TIMEOUT_S,
        trust_env=False,
    )
    told: dict[str, Any] = answer.raise_for_status().json()
    return bool(told["status"]["allowed"])


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
