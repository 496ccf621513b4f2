"""Which pods `--vllm kubernetes://…` names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.errors import ConfigError
from router.vllm.pods.selection import pod_selection

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_a_pod_finds_its_own_cluster() -> None:
    found = pod_selection("kubernetes://chat/app=vllm,tier%20in%20(a, b),!old?port=8100", POD)
    assert (found.namespace, found.labels) == ("chat", "app=vllm,tier in (a, b),!old")
    assert (found.port, found.scheme, found.lease_s) == (8100, "http", 30.0)
    assert found.cluster.url == "https://10.96.0.1:443"
    assert found.cluster.token_file == Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def test_another_cluster_can_be_named() -> None:
    words = "kubernetes://c/app.kubernetes.io/name=vllm?server=https://k:6443&token=/t&ca=/c"
    found = pod_selection(f"{words}&role=llm-d.ai/role&lease=9&scheme=https", {})
    assert found.labels == "app.kubernetes.io/name=vllm" and found.cluster.url == "https://k:6443"
    assert (found.cluster.token_file, found.cluster.ca_file) == (Path("/t"), Path("/c"))
    assert (found.role_label, found.lease_s, found.scheme) == ("llm-d.ai/role", 9.0, "https")


def test_an_ipv6_clusters_address_has_brackets() -> None:
    environ = POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert pod_selection("kubernetes://c/a=b", environ).cluster.url == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("kubernetes:///app=vllm", "namespace"),
        ("kubernetes://Chat/app=vllm", "Chat"),
        ("kubernetes://chat", "labels"),
        ("kubernetes://chat/a=b?port=0", "port=0"),
        ("kubernetes://chat/a=b?lease=x", "lease=x"),
        ("kubernetes://chat/a=b?scheme=ftp", "scheme=ftp"),
        ("kubernetes://chat/a=b?prot=8000", "prot"),
        ("kubernetes://chat/a=b?role=a b", "role"),
        ("kubernetes://chat/a=b?server=http://k:6443", "https"),
    ],
)
def test_what_is_wrong_is_named(words: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        pod_selection(words, POD)


def test_outside_a_cluster_the_server_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match="server=https"):
        pod_selection("kubernetes://chat/a=b", {})
