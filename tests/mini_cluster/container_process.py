"""One run of a container: a local process with mounts, processes and a name of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_PROGRAM = Path(__file__).with_name("container_init.py")


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine, where the container sees it."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """How a container is started."""

    command: Sequence[str]
    folder: str
    """In which it starts."""
    environ: Mapping[str, str]
    hostname: str
    mounts: Sequence[Mount]
    scratch: Path
    """An empty folder, for layers over what the machine has."""
    read_only_root: bool
    capabilities: Sequence[int] | None
    """Those that stay; None: all."""

    def text(self) -> str:
        """For the program that becomes the container."""
        mounts = [asdict(mount) for mount in self.mounts]
        words = {"command": list(self.command), "folder": self.folder, "hostname": self.hostname}
        rest = {"read_only_root": self.read_only_root, "capabilities": self.capabilities}
        return json.dumps({**words, **rest, "mounts": mounts, "scratch": str(self.scratch)})


class ContainerProcess:
    """Ends with this process, however that ends."""

    def __init__(self, process: asyncio.subprocess.Process, plan: Plan) -> None:
        self._process = process
        self._plan = plan

    @classmethod
    async def start(cls, plan: Plan, log: Path) -> ContainerProcess:
        """What it says is appended to the log."""
        with log.open("ab") as out:
            process = await _run(plan.text(), plan.environ, out.fileno())
        return cls(process, plan)

    async def wait(self) -> int:
        """Its exit code, as a shell has it: 128 and the signal's number for one killed."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Asks process 1 to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Everything in the container, at once; `wait` returns when nothing is left."""
        self._send(signal.SIGQUIT)

    async def run_inside(self, command: Sequence[str]) -> tuple[int, str]:
        """Another process in the container: its exit code, and what it said. Killed when the
        caller is cancelled."""
        pid, plan = self._process.pid, self._plan
        words = {"join": pid, "command": list(command), "folder": "/"}
        text = json.dumps(words | {"capabilities": plan.capabilities})
        process = await _run(text, plan.environ, asyncio.subprocess.PIPE)
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return await process.wait(), said.decode(errors="replace")

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


async def _run(plan: str, environ: Mapping[str, str], out: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(_PROGRAM), plan),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=out,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(environ),
        start_new_session=True,
    )
