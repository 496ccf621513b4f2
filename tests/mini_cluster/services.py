"""Services: an address each, the list of who stands behind it, and a name for pods."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from datetime import datetime
from typing import NamedTuple

from tests.mini_cluster.children import is_going, is_ready, new_child, phase
from tests.mini_cluster.history import Object
from tests.mini_cluster.label_selector import has_all
from tests.mini_cluster.loopback import Loopback
from tests.mini_cluster.object_store import ObjectStore

SLICES = "endpointslices.discovery.k8s.io"
SERVICE_NAME = "kubernetes.io/service-name"


class ServiceController:
    """Gives cluster IPs, and keeps EndpointSlices: one for each set of ports that pods have."""

    def __init__(self, loopback: Loopback) -> None:
        self._loopback = loopback

    def reconcile(self, store: ObjectStore, now: datetime) -> None:
        for service in store.select("services"):
            if service["spec"].get("type") == "ExternalName":
                continue
            if not service["spec"].get("clusterIP"):
                self._give_address(store, service)
            if service["spec"].get("selector"):
                _reconcile_slices(store, service)

    def _give_address(self, store: ObjectStore, service: Object) -> None:
        taken = {found["spec"].get("clusterIP", "") for found in store.select("services")}
        address = self._loopback.service(taken)

        def give(draft: Object) -> None:
            draft["spec"] |= {"clusterIP": address, "clusterIPs": [address]}

        metadata = service["metadata"]
        store.edit("services", metadata["namespace"], metadata["name"], give)


class Port(NamedTuple):
    name: str
    port: int


def _reconcile_slices(store: ObjectStore, service: Object) -> None:
    metadata = service["metadata"]
    wanted = {made["metadata"]["name"]: made for made in _slices(store, service)}
    for listed in slices_of(store, metadata["namespace"], metadata["name"]):
        if listed["metadata"]["name"] not in wanted:
            store.delete(SLICES, metadata["namespace"], listed["metadata"]["name"])
    for name, made in wanted.items():
        old = store.find(SLICES, metadata["namespace"], name)
        if old is None:
            store.create(SLICES, made)
        else:
            store.update(SLICES, old | {"endpoints": made["endpoints"]})


def slices_of(store: ObjectStore, namespace: str, service: str) -> list[Object]:
    wanted = {SERVICE_NAME: service}
    return store.select(
        SLICES, namespace, lambda found: has_all(wanted, found["metadata"].get("labels") or {})
    )


def _slices(store: ObjectStore, service: Object) -> list[Object]:
    by_ports: dict[tuple[Port, ...], list[Object]] = defaultdict(list)
    for pod in _pods_behind(store, service):
        by_ports[_ports(service, pod)].append(_endpoint(service, pod))
    return [_slice(service, ports, found) for ports, found in by_ports.items()]


def _pods_behind(store: ObjectStore, service: Object) -> list[Object]:
    """Those that have an address and have not ended."""
    selector = service["spec"]["selector"]
    found = store.select(
        "pods",
        service["metadata"]["namespace"],
        lambda pod: has_all(selector, pod["metadata"].get("labels") or {}),
    )
    return [
        pod
        for pod in found
        if pod.get("status", {}).get("podIP") and phase(pod) not in ("Succeeded", "Failed")
    ]


def _ports(service: Object, pod: Object) -> tuple[Port, ...]:
    named = {
        port["name"]: port["containerPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
        if "name" in port
    }
    found = []
    for port in service["spec"].get("ports", []):
        target = port.get("targetPort", port["port"])
        number = target if isinstance(target, int) else named.get(target)
        if number is not None:
            found.append(Port(port.get("name", ""), number))
    return tuple(found)


def _endpoint(service: Object, pod: Object) -> Object:
    shows_all = bool(service["spec"].get("publishNotReadyAddresses"))
    conditions = {
        "ready": shows_all or (is_ready(pod) and not is_going(pod)),
        "serving": shows_all or is_ready(pod),
        "terminating": is_going(pod),
    }
    reference = {"kind": "Pod"} | {
        key: pod["metadata"][key] for key in ("name", "namespace", "uid")
    }
    made = {
        "addresses": [pod["status"]["podIP"]],
        "conditions": conditions,
        "nodeName": pod["spec"]["nodeName"],
        "targetRef": reference,
    }
    hostname = pod["spec"].get("hostname")
    if hostname and pod["spec"].get("subdomain") == service["metadata"]["name"]:
        made["hostname"] = hostname
    return made


def _slice(service: Object, ports: tuple[Port, ...], endpoints: list[Object]) -> Object:
    name = service["metadata"]["name"]
    digest = hashlib.sha256(json.dumps(ports).encode()).hexdigest()[:5]
    made = new_child(service, "discovery.k8s.io/v1", "EndpointSlice", f"{name}-{digest}")
    made["metadata"]["labels"] = {SERVICE_NAME: name}
    listed = [{"name": port.name, "port": port.port, "protocol": "TCP"} for port in ports]
    return made | {"addressType": "IPv4", "ports": listed, "endpoints": endpoints}
