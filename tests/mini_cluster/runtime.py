"""What starts the containers of a node's pods: processes of this machine, or what a test brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tests.mini_cluster.container_plan import plan_of
from tests.mini_cluster.container_process import ContainerProcess
from tests.mini_cluster.history import Object
from tests.mini_cluster.images import Image
from tests.mini_cluster.volumes import PodVolumes

if TYPE_CHECKING:
    from tests.mini_cluster.pod_run import Node


class Container(Protocol):
    """One run of a container, which has begun."""

    async def wait(self) -> int:
        """Its exit code, as a shell has it."""

    def terminate(self) -> None:
        """Asks process 1 to end. Idempotent."""

    def kill(self) -> None:
        """Everything in it, at once; `wait` returns when nothing is left. Idempotent."""

    async def run_inside(self, command: Sequence[str]) -> tuple[int, str]:
        """Another process in it: its exit code, and what it said."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A container of a pod that a node is to run."""

    node: Node
    pod: Object
    container: Object
    volumes: PodVolumes
    folder: Path
    """Of the pod; its owner removes it."""


class Runtime(Protocol):
    """Of a node."""

    async def start(self, asked: Asked, log: Path) -> Container:
        """What it says is appended to the log. Raises MissingConfiguration for what is named and
        not there."""


class Processes:
    """Images are programs of this machine."""

    def __init__(self, images: Mapping[str, Image]) -> None:
        """By their repositories."""
        self._images = images

    async def start(self, asked: Asked, log: Path) -> Container:
        plan = plan_of(
            asked.node, asked.pod, asked.container, asked.volumes, asked.folder, self._images
        )
        return await ContainerProcess.start(plan, log)
