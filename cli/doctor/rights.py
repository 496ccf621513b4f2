"""What a pod's account may do in its cluster, by whose pod it is: its environment says that.

The API server is asked over plain HTTPS, by the files that Kubernetes gives a pod: a router's image
has no client library.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cli.doctor.finding import Check, Finding, broken, fine, poor

TIMEOUT_S = 5.0
EVERYWHERE = ""
"""Of all namespaces, or of what is in none."""
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_GROUPS = "leaderworkerset.x-k8s.io"
_ROUTER, _PLANNER = "a router that looks for vLLM's pods", "the planner"


class Deed(NamedTuple):
    """What an account may or may not do, and who wants it."""

    verb: str
    group: str
    resource: str
    wanted_by: str
    namespace: str | None = None
    """None: the account's own; see EVERYWHERE."""
    of: str = ""
    """The one object that it is about, as a Role names it; empty: all."""
    instead: tuple[str, str] | None = None
    """Group and resource of the other kind that a pool may be of: the same of it is as good, with
    the right to list that kind."""
    without: str = ""
    """What is left out where it may not, and need not; empty: somebody wants it."""
    is_needed: bool = False
    """Whose pod this is does nothing without it."""

    @property
    def name(self) -> str:
        """Such as "patch deployments/scale of llm-decode"."""
        where = "" if self.namespace is None else f" in {self.namespace}"
        where = " everywhere" if self.namespace == EVERYWHERE else where
        return f"{self.verb} {self.resource}{f' of {self.of}' if self.of else ''}{where}"


DEEDS = (
    Deed("list", "apps", "deployments", "splitserve scale and rollout"),
    Deed("patch", "apps", "deployments/scale", "splitserve scale"),
    Deed("patch", "apps", "deployments", "splitserve rollout pause, resume and undo"),
    Deed("list", "apps", "replicasets", "splitserve rollout"),
    Deed("list", "", "pods", _ROUTER),
    Deed("watch", "", "pods", _ROUTER),
)
"""Where the pod is neither a planner nor a router that looks for others: anybody's commands."""


def right_checks(account: Path, environ: Mapping[str, str]) -> list[Check]:
    """One for each deed."""
    deeds = deeds_of(environ)
    return [Check(f"rbac {deed.name}", partial(_may, deed, account)) for deed in deeds]


def deeds_of(environ: Mapping[str, str]) -> tuple[Deed, ...]:
    """What this pod needs, as the chart's Roles grant it: sizes of pools by their names, pods where
    vLLM's are."""
    deeds: tuple[Deed, ...] = ()
    if release := environ.get("SPLITSERVE_KUBERNETES"):
        pools = environ.get("SPLITSERVE_POOLS", "").split(",")
        deeds += _of_planner(release, [pool.partition("=")[0].strip() for pool in pools if pool])
    vllm = urlsplit(environ.get("SPLITSERVE_VLLM", ""))
    if vllm.scheme == "kubernetes":
        deeds += tuple(
            Deed(verb, "", "pods", _ROUTER, namespace=vllm.netloc, is_needed=True)
            for verb in ("list", "watch")
        )
    return deeds or DEEDS


def _of_planner(release: str, pools: list[str]) -> tuple[Deed, ...]:
    """As planner/ asks an API server: see cluster/scaling/kubernetes.py."""
    namespace, _, name = release.rpartition("/")
    where = namespace or None
    looks = (
        ("", "limitranges"),
        ("", "resourcequotas"),
        ("policy", "poddisruptionbudgets"),
    )
    unseen = "what nodes have free is not looked at (planner.seesNodes)"
    return (
        Deed("list", "apps", "deployments", _PLANNER, where, is_needed=True),
        *(Deed("list", group, resource, _PLANNER, where) for group, resource in looks),
        *(
            Deed(
                *("patch", "apps", "deployments/scale", _PLANNER, where),
                of=f"{name}-{pool}",
                instead=(_GROUPS, "leaderworkersets/scale"),
                is_needed=True,
            )
            for pool in pools
        ),
        *(
            Deed("list", "", resource, _PLANNER, EVERYWHERE, without=unseen)
            for resource in ("nodes", "pods")
        ),
    )


def _may(deed: Deed, account: Path) -> Finding:
    """A right that is missing matters to whoever wants it here, and to nobody else."""
    try:
        missing = _missing(deed, account)
    except Exception as failure:  # of the network, TLS, or an answer that is none
        return broken(
            f"the API server does not say whether {deed.name} is allowed: {failure}",
            "see the cluster's network policies, and that the token is not expired",
        )
    if missing is None:
        return fine(f"may {deed.name}")
    if missing.without:
        return fine(f"may not {missing.name}: {missing.without}")
    role = f"give its Role the verb {missing.verb} on {missing.resource}"
    if missing.instead is not None:
        _, other = missing.instead
        role += f", or where the pool has hosts on {other}, and list on {other.partition('/')[0]}"
    if missing.is_needed:
        return broken(f"may not {missing.name}", f"{missing.wanted_by} does nothing so: {role}")
    return poor(f"may not {missing.name}", f"{missing.wanted_by} would need it from here: {role}")


def _missing(deed: Deed, account: Path) -> Deed | None:
    """What may not be done of it; None: nothing."""
    if _reviewed(deed, account):
        return None
    if deed.instead is None:
        return deed
    group, resource = deed.instead
    other = deed._replace(group=group, resource=resource, instead=None)
    if not _reviewed(other, account):
        return deed
    looks = other._replace(verb="list", resource=resource.partition("/")[0], of="")
    return None if _reviewed(looks, account) else looks


def _reviewed(deed: Deed, account: Path) -> bool:
    import ssl

    import httpx

    resource, _, subresource = deed.resource.partition("/")
    own = (account / "namespace").read_text().strip()
    attributes = {
        "namespace": own if deed.namespace is None else deed.namespace,
        "verb": deed.verb,
        "group": deed.group,
        "resource": resource,
        "subresource": subresource,
        "name": deed.of,
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
