"""A pod as the API has it, as far as a vLLM server in it is concerned.

label       splitserve/role             prefill, decode, or both (aggregated is the same)
annotation  splitserve/kv-events-port   at which it publishes its KV events
annotation  splitserve/kv-replay-port   at which it tells those of its past
annotation  splitserve/kv-lease-s       its kv_lease_duration
"""

from __future__ import annotations

import msgspec

from cluster.errors import ConfigError
from router.vllm.pods.selection import PodSelection, lease_in, port_in
from router.vllm.server_address import VllmAddress, VllmRole, vllm_addresses

EVENTS_PORT = "splitserve/kv-events-port"
REPLAY_PORT = "splitserve/kv-replay-port"
LEASE = "splitserve/kv-lease-s"
_ROLES = {**{role.value: role for role in VllmRole}, "aggregated": VllmRole.BOTH}


class PodMetadata(msgspec.Struct, rename="camel"):
    """What it is called, and what was written on it."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodCondition(msgspec.Struct):
    """One of them."""

    type: str = ""
    status: str = ""


class PodStatus(msgspec.Struct):
    """As its kubelet tells it."""

    phase: str = ""
    address: str = msgspec.field(default="", name="podIP")
    conditions: list[PodCondition] | None = None


class Pod(msgspec.Struct):
    """One pod."""

    metadata: PodMetadata = msgspec.field(default_factory=PodMetadata)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def takes_work(self) -> bool:
        """It is ready, and is not being deleted."""
        if self.metadata.deletion_timestamp is not None or self.status.phase != "Running":
            return False
        ready = (c.status == "True" for c in self.status.conditions or () if c.type == "Ready")
        return bool(self.status.address) and any(ready)


def address_of(pod: Pod, selection: PodSelection) -> VllmAddress:
    """Of a pod that takes work. Raises ConfigError that names what is written wrong on it."""
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    word = labels.get(selection.role_label, VllmRole.BOTH.value)
    if (role := _ROLES.get(word)) is None:
        raise _refused("label", selection.role_label, word, ", ".join(_ROLES))
    host = f"[{pod.status.address}]" if ":" in pod.status.address else pod.status.address
    (checked,) = vllm_addresses(f"{selection.scheme}://{host}:{selection.port}")
    return VllmAddress(
        url=checked.url,
        role=role,
        lease_s=_lease_s(annotations.get(LEASE), selection.lease_s),
        is_found=True,
        events_port=_port(EVENTS_PORT, annotations.get(EVENTS_PORT)),
        replay_port=_port(REPLAY_PORT, annotations.get(REPLAY_PORT)),
    )


def _lease_s(word: str | None, default_s: float) -> float:
    if word is None:
        return default_s
    if (lease_s := lease_in(word)) is None:
        raise _refused("annotation", LEASE, word, "seconds")
    return lease_s


def _port(name: str, word: str | None) -> int | None:
    if word is None:
        return None
    if (port := port_in(word)) is None:
        raise _refused("annotation", name, word, "a number from 1 to 65535")
    return port


def _refused(kind: str, name: str, word: str, allowed: str) -> ConfigError:
    return ConfigError(
        f"its {kind} {name} is {word[:64]!r}; allowed: {allowed}",
        param="vllm",
    )
