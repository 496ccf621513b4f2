"""How a container of a pod is started on a node: what its manifest says, in this machine's terms.

Not honoured: users (all is root's here, without the capabilities that a container drops), limits of
memory and processors, seccomp.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mini_cluster.container_process import Mount, Plan
from tests.mini_cluster.environment import command_of, environment
from tests.mini_cluster.history import Object
from tests.mini_cluster.images import Image, repository_of
from tests.mini_cluster.volumes import PodVolumes, mounts_of

if TYPE_CHECKING:
    from tests.mini_cluster.pod_run import Node

_CAPABILITIES = {"IPC_LOCK": 14, "NET_BIND_SERVICE": 10, "SYS_PTRACE": 19}


def plan_of(
    node: Node,
    pod: Object,
    container: Object,
    volumes: PodVolumes,
    folder: Path,
    images: Mapping[str, Image],
) -> Plan:
    """Raises MissingConfiguration for what is named and not there."""
    image = images.get(repository_of(container["image"]), Image())
    environ = node.api.environ | environment(node.store, pod, container, image)
    scratch = folder / f"{container['name']}.layers"
    scratch.mkdir(exist_ok=True)
    mounts = mounts_of(container, volumes.fill(pod))
    security = container.get("securityContext") or {}
    return Plan(
        command=command_of(container, image, environ),
        folder=container.get("workingDir", "/"),
        environ=environ,
        hostname=pod["spec"].get("hostname") or pod["metadata"]["name"],
        mounts=[*mounts, *_seen_again(image, mounts), Mount(str(node.hosts), "/etc/hosts", True)],
        scratch=scratch,
        read_only_root=bool(security.get("readOnlyRootFilesystem")),
        capabilities=_kept(security.get("capabilities") or {}),
    )


def _seen_again(image: Image, mounts: list[Mount]) -> list[Mount]:
    """What an image needs, where a volume would hide it."""
    targets = [mount.target for mount in mounts]
    return [
        Mount(str(folder), str(folder), read_only=True)
        for folder in image.needs
        if any(folder.is_relative_to(target) for target in targets)
    ]


def _kept(capabilities: Object) -> list[int] | None:
    if "ALL" not in capabilities.get("drop", []):
        return None
    return [_CAPABILITIES[name] for name in capabilities.get("add", [])]
