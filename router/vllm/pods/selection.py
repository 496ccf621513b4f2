"""Which pods of a cluster are vLLM servers, as an operator names them.

    kubernetes://NAMESPACE/LABEL-SELECTOR[?port=8000&scheme=http&lease=30&role=splitserve/role]
    kubernetes://chat/app=vllm,tier!=old?port=8100

The cluster is the one that this process is a pod of; `server`, `token` and `ca` name another one:
a URL, and files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from cluster.errors import ConfigError
from router.vllm.server_address import LEASE_S, MAX_LEASE_S, MIN_LEASE_S

DEFAULT_PORT = 8000
ROLE_LABEL = "splitserve/role"
MAX_SELECTOR_CHARS = 1024
MAX_PORT_DIGITS = 5
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_WORDS = ("port", "scheme", "lease", "role", "server", "token", "ca")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """An API server, and what a caller shows it."""

    url: str
    token_file: Path
    """Read anew for each call: tokens are replaced every hour."""
    ca_file: Path
    """By which the server is known; read anew after each fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSelection:
    """Pods with these labels, in this namespace."""

    namespace: str
    labels: str
    """A label selector, as kubectl's `-l` takes it."""
    port: int = DEFAULT_PORT
    """At which they answer over HTTP."""
    scheme: str = "http"
    lease_s: float = LEASE_S
    """Of a pod that has no annotation with another one."""
    role_label: str = ROLE_LABEL
    cluster: ClusterAddress


def pod_selection(named: str, environ: Mapping[str, str] | None = None) -> PodSelection:
    """`environ`: by which a pod knows its cluster; default: this process's. Raises ConfigError that
    names the word at fault."""
    parts = urlsplit(named)
    words = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(words.keys() - set(_WORDS)):
        raise _refused(unknown[0], f"allowed after the ?: {', '.join(_WORDS)}")
    namespace, labels = parts.netloc, unquote(parts.path).strip("/ ")
    if not _NAMESPACE.fullmatch(namespace):
        raise _refused(namespace, "a namespace comes first, as in kubernetes://chat/app=vllm")
    if not labels or len(labels) > MAX_SELECTOR_CHARS or not labels.isprintable():
        raise _refused(labels[:64], "labels come after the namespace, such as app=vllm,tier!=old")
    return PodSelection(
        namespace=namespace,
        labels=labels,
        port=_port(words.get("port", str(DEFAULT_PORT))),
        scheme=_scheme(words.get("scheme", "http")),
        lease_s=_lease_s(words.get("lease", str(LEASE_S))),
        role_label=_label(words.get("role", ROLE_LABEL)),
        cluster=_cluster(words, os.environ if environ is None else environ),
    )


def _cluster(words: Mapping[str, str], environ: Mapping[str, str]) -> ClusterAddress:
    url = words.get("server") or _own_server(environ)
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query:
        raise _refused(url, "server is https://host:port: a token is sent there")
    return ClusterAddress(
        url=url.rstrip("/"),
        token_file=Path(words.get("token") or _ACCOUNT / "token").expanduser(),
        ca_file=Path(words.get("ca") or _ACCOUNT / "ca.crt").expanduser(),
    )


def _own_server(environ: Mapping[str, str]) -> str:
    host, port = (environ.get(f"KUBERNETES_SERVICE_{what}", "") for what in ("HOST", "PORT"))
    if not host or not port:
        raise _refused(
            "kubernetes://",
            "this process is no pod; name a cluster by ?server=https://host:port&token=…",
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _port(word: str) -> int:
    if (port := port_in(word)) is None:
        raise _refused(f"port={word[:64]}", "a port is a number from 1 to 65535")
    return port


def _scheme(word: str) -> str:
    if word not in ("http", "https"):
        raise _refused(f"scheme={word}", "http or https")
    return word


def _lease_s(word: str) -> float:
    lease_s = lease_in(word)
    if lease_s is None:
        raise _refused(f"lease={word}", f"{MIN_LEASE_S:g} to {MAX_LEASE_S:g} seconds")
    return lease_s


def port_in(word: str) -> int | None:
    """None for a word that is no port, however long: Python reads no number of 5000 digits."""
    if not (word.isascii() and word.isdigit() and len(word) <= MAX_PORT_DIGITS):
        return None
    return port if 0 < (port := int(word)) < 65_536 else None


def lease_in(word: str) -> float | None:
    """Seconds; None for a word that is no lease."""
    try:
        lease_s = float(word)
    except ValueError:
        return None
    return lease_s if MIN_LEASE_S <= lease_s <= MAX_LEASE_S else None


def _label(word: str) -> str:
    if not _LABEL.fullmatch(word):
        raise _refused(f"role={word}", "the name of a label, such as splitserve/role")
    return word


def _refused(word: str, remedy: str) -> ConfigError:
    return ConfigError(f"--vllm: {word!r} is not right; {remedy}", param="vllm")
