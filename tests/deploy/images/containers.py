"""Pods of a mini cluster, in containers of real images: by podman, and by runc alone.

The network is the host's; all else is the image's and the manifest's.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.deploy.images.asked_container import (
    LOCKED_BYTES,
    OPEN_FILES,
    ContainerTold,
    told_of,
)
from tests.deploy.images.runc_bundle import bundle
from tests.deploy.images.storage import Storage
from tests.mini_cluster.runtime import Asked, Container


class Engine(Protocol):
    """Words that a program understands."""

    def begin(self, told: ContainerTold, folder: Path) -> list[str]:
        """That run the container, to its end; `folder` is for what it writes beside."""

    def inside(self, name: str, command: Sequence[str]) -> list[str]:
        """That run a command in it."""

    def killing(self, name: str) -> list[str]:
        """That kill all that is in it."""

    def ended(self, name: str) -> None:
        """Leaves nothing."""


class RunningContainer:
    """A process of this machine that lives as long as the container, and passes signals on."""

    def __init__(self, process: asyncio.subprocess.Process, engine: Engine, name: str) -> None:
        self._process = process
        self._engine = engine
        self._is_cleared = False
        self.name = name

    @property
    def is_over(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> int:
        code = await self._process.wait()
        if not self._is_cleared:
            self._is_cleared = True
            self._engine.ended(self.name)
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        if not self.is_over:
            self._process.terminate()

    def kill(self) -> None:
        if not self.is_over:
            subprocess.run(self._engine.killing(self.name), capture_output=True, check=False)

    async def run_inside(self, command: Sequence[str]) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *self._engine.inside(self.name, command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return await process.wait(), said.decode(errors="replace")


class Containers:
    """A runtime for the nodes of a mini cluster. `begun` has all containers, by the pod's name."""

    def __init__(self, storage: Storage, engine: Engine) -> None:
        self._storage = storage
        self._engine = engine
        self.begun: dict[str, RunningContainer] = {}

    async def start(self, asked: Asked, log: Path) -> Container:
        told = told_of(asked, self._config)
        folder = asked.folder / told.name
        folder.mkdir()
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *self._engine.begin(told, folder),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out.fileno(),
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        made = RunningContainer(process, self._engine, told.name)
        self.begun[asked.pod["metadata"]["name"]] = made
        return made

    def _config(self, image: str) -> dict[str, Any]:
        return dict(self._storage.inspected(image)["Config"])


class Podman:
    """With runc below it."""

    def __init__(self, storage: Storage) -> None:
        # The machine has control groups of both versions, and no systemd that would make some.
        self._words = ["podman", *storage.options, "--runtime", "runc"]
        self._words += ["--cgroup-manager", "cgroupfs"]

    def begin(self, told: ContainerTold, folder: Path) -> list[str]:
        program, *arguments = told.command
        return [
            *self._words,
            *("run", "--rm", "--name", told.name, "--pull", "never", "--network", "host"),
            *("--no-hosts", "--hostname", told.hostname, "--read-only-tmpfs=false"),
            f"--read-only={str(told.read_only_root).lower()}",
            *("--user", f"{told.user}:{told.group}", "--group-add", str(told.volumes_group)),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--ulimit", f"nofile={OPEN_FILES}:{OPEN_FILES}"),
            *("--ulimit", f"memlock={LOCKED_BYTES}:{LOCKED_BYTES}"),
            *("--ulimit", "nproc=4096:4096", "--memory", str(told.memory_limit_bytes)),
            *(word for each in told.words for word in ("--env", each)),
            *(
                f"--volume={mount.source}:{mount.target}:{'ro' if mount.read_only else 'rw'}"
                for mount in told.mounts
            ),
            *(
                f"--mount=type=tmpfs,destination={memory.target},tmpfs-size={memory.size_bytes}"
                for memory in told.memories
            ),
            *("--entrypoint", json.dumps([program]), told.image, *arguments),
        ]

    def inside(self, name: str, command: Sequence[str]) -> list[str]:
        return [*self._words, "exec", name, *command]

    def killing(self, name: str) -> list[str]:
        return [*self._words, "kill", "--signal", "KILL", name]

    def ended(self, name: str) -> None:
        """It removes what has ended by itself."""


class Runc:
    """Nothing above it but what is written here: each container has its files from buildah."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._words = ["runc", "--root", f"{storage.folder}/runc"]

    def begin(self, told: ContainerTold, folder: Path) -> list[str]:
        self._storage.buildah("from", "--pull-never", "--name", told.name, told.image)
        root = self._storage.buildah("mount", told.name).strip()
        (folder / "config.json").write_text(json.dumps(bundle(told, root)))
        return [*self._words, "run", "--bundle", str(folder), told.name]

    def inside(self, name: str, command: Sequence[str]) -> list[str]:
        return [*self._words, "exec", name, *command]

    def killing(self, name: str) -> list[str]:
        return [*self._words, "kill", name, "KILL"]

    def ended(self, name: str) -> None:
        self._storage.buildah("rm", name)
