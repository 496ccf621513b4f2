"""What a pod's manifest asks of whoever runs its container: users, limits and mounts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mini_cluster.container_process import Mount
from tests.mini_cluster.environment import command_of, environment
from tests.mini_cluster.images import Image
from tests.mini_cluster.runtime import Asked
from tests.mini_cluster.volumes import mounts_of

_UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
LOCKED_BYTES, OPEN_FILES = 64 * 2**10, 20_000
"""Limits that a node may have."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A volume of the medium `Memory`."""

    target: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ContainerTold:
    """A container as its runtime is told of it."""

    name: str
    image: str
    command: Sequence[str]
    environ: Mapping[str, str]
    hostname: str
    mounts: Sequence[Mount]
    memories: Sequence[Memory]
    memory_limit_bytes: int
    user: int
    group: int
    volumes_group: int
    read_only_root: bool

    @property
    def words(self) -> list[str]:
        """NAME=VALUE of all variables."""
        return [f"{name}={value}" for name, value in self.environ.items()]


def told_of(asked: Asked, config_of: Callable[[str], dict[str, Any]]) -> ContainerTold:
    """`config_of`: an image's. A manifest that asks for less than the chart's own security is
    refused: nothing here would show it."""
    spec, container = asked.pod["spec"], asked.container
    pod, own = spec["securityContext"], container["securityContext"]
    assert pod["runAsNonRoot"] and pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["capabilities"] == {"drop": ["ALL"]} and not own["allowPrivilegeEscalation"]
    image = container["image"]
    config = config_of(image)
    variables = dict(word.split("=", 1) for word in config["Env"])
    program = Image(config["Entrypoint"], variables)
    node = asked.node
    environ = node.api.environ | environment(node.store, asked.pod, container, program)
    memories = _memories(spec, container)
    mounts = [
        mount
        for mount in mounts_of(container, asked.volumes.fill(asked.pod))
        if mount.target not in [memory.target for memory in memories]
    ]
    for mount in mounts:
        if not mount.read_only or "secret" in str(_volume(spec, container, mount.target)):
            _give(Path(mount.source), pod["fsGroup"])
    limit = container.get("resources", {}).get("limits", {}).get("memory", "0")
    return ContainerTold(
        name=f"{asked.pod['metadata']['name']}-{os.urandom(3).hex()}",
        image=image,
        command=command_of(container, program, environ),
        environ=environ,
        hostname=asked.pod["metadata"]["name"],
        mounts=[*mounts, Mount(str(asked.node.hosts), "/etc/hosts", True)],
        memories=memories,
        memory_limit_bytes=num_bytes(limit),
        user=pod["runAsUser"],
        group=pod["runAsGroup"],
        volumes_group=pod["fsGroup"],
        read_only_root=own["readOnlyRootFilesystem"],
    )


def _volume(spec: dict[str, Any], container: dict[str, Any], target: str) -> dict[str, Any]:
    (name,) = [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == target]
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == name]
    return dict(volume)


def _memories(spec: dict[str, Any], container: dict[str, Any]) -> list[Memory]:
    targets = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
    volumes = {target: _volume(spec, container, target).get("emptyDir") or {} for target in targets}
    return [
        Memory(target, num_bytes(volume["sizeLimit"]))
        for target, volume in volumes.items()
        if volume.get("medium") == "Memory"
    ]


def _give(folder: Path, group: int) -> None:
    """As `fsGroup` has it: the group's, with what is made there, and no others'."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, -1, group)
        path.chmod(path.stat().st_mode | (0o2770 if path.is_dir() else 0))


def num_bytes(quantity: str) -> int:
    """Of Kubernetes' own form, as far as the chart has it."""
    found = re.fullmatch(r"(\d+)(Ki|Mi|Gi|)", quantity)
    assert found is not None, quantity
    return int(found[1]) * _UNITS[found[2]]
