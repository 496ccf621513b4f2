"""The life of one container of a pod: starts, probes, ends, restarts.

waiting ──▶ running ──▶ terminated ──▶ waiting (CrashLoopBackOff) ──▶ running …
               │ started ─▶ ready ⇄ not ready
               └ a startup or liveness probe that fails: SIGTERM, grace, SIGKILL
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.process.background import cancel
from tests.mini_cluster.configuration import MissingConfiguration
from tests.mini_cluster.history import Object
from tests.mini_cluster.metadata import timestamp
from tests.mini_cluster.probes import Asked, failure_of, get
from tests.mini_cluster.probing import tell_changes, until_it_fails, until_it_passes
from tests.mini_cluster.runtime import Container

_AGAIN_S = 0.5
_LONGEST_BACKOFF_S = 30.0


class ContainerRun:
    """All calls from one event loop. `changed` is called after each change of `status`."""

    def __init__(
        self,
        container: Object,
        start: Callable[[], Awaitable[Container]],
        address: str,
        log: Path,
        changed: Callable[[], None],
    ) -> None:
        self._container = container
        self._new = start
        self._log = log
        self._asked = Asked(address, container, self._run_inside)
        self._changed = changed
        self._process: Container | None = None
        self._is_leaving = asyncio.Event()
        self._state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self._last_state: Object = {}
        self._num_restarts = 0
        self._is_started = False
        self.is_ready = False
        self.exit_code: int | None = None
        """Of a run after which there is none."""

    @property
    def has_run(self) -> bool:
        """It runs, or did."""
        return "waiting" not in self._state or bool(self._last_state)

    @property
    def status(self) -> Object:
        """As in a pod's containerStatuses."""
        image = self._container["image"]
        return {
            "name": self._container["name"],
            "image": image,
            "imageID": image,
            "containerID": f"process://{id(self)}",
            "state": self._state,
            "lastState": self._last_state,
            "restartCount": self._num_restarts,
            "started": self._is_started,
            "ready": self.is_ready,
        }

    async def run(self, restart: str) -> None:
        """To its last end. `restart`: Always, OnFailure or Never."""
        while not self._is_leaving.is_set():
            code = await self._run_once()
            self._is_started = self.is_ready = False
            if code is None:
                return
            if self._is_leaving.is_set() or not _comes_again(restart, code):
                self.exit_code = code
                self._changed()
                return
            await self._back_off()

    async def leave(self, grace_s: float) -> None:
        """preStop, SIGTERM, and SIGKILL when the grace is over; `run` then returns. Cancelled, it
        leaves what runs to `kill`."""
        self._is_leaving.set()
        process = self._process
        if process is None:
            self._tell("is asked to leave, and does not run")
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._pre_stop()
                process.terminate()
                await process.wait()
                return
        process.kill()

    def kill(self) -> None:
        self._is_leaving.set()
        if self._process is not None:
            self._process.kill()

    async def _run_once(self) -> int | None:
        """Its exit code; None: it was asked to leave before it began."""
        process = await self._start()
        if process is None:
            return None
        self._process, began = process, timestamp(datetime.now(UTC))
        self._say({"running": {"startedAt": began}})
        if self._is_leaving.is_set():
            process.kill()
        watching = [asyncio.create_task(self._watch(process), name="probes")]
        try:
            code = await process.wait()
        finally:
            await cancel(watching)
            process.kill()
            self._process = None
        end = {"startedAt": began, "finishedAt": timestamp(datetime.now(UTC)), "exitCode": code}
        self.is_ready = False
        self._tell(f"has ended: exit code {code}")
        self._say({"terminated": end | {"reason": "Error" if code else "Completed"}})
        return code

    async def _start(self) -> Container | None:
        """Waits for what it needs and nobody has made yet."""
        while not self._is_leaving.is_set():
            try:
                return await self._new()
            except MissingConfiguration as missing:
                reason = {"reason": "CreateContainerConfigError", "message": str(missing)}
            except Exception as error:  # of the runtime: it is told as one, and tried again
                reason = {"reason": "CreateContainerError", "message": str(error)}
            self._say({"waiting": reason})
            await self._unless_leaving(_AGAIN_S)
        return None

    async def _back_off(self) -> None:
        self._last_state = self._state
        self._num_restarts += 1
        self._say({"waiting": {"reason": "CrashLoopBackOff"}})
        await self._unless_leaving(min(_LONGEST_BACKOFF_S, 2.0 ** (self._num_restarts - 1)))

    async def _unless_leaving(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_leaving.wait()

    async def _watch(self, process: Container) -> None:
        """What its probes say, as long as it runs."""
        startup = self._container.get("startupProbe")
        wrong = await until_it_passes(startup, self._ask) if startup else ""
        if wrong:
            await self._end(process, f"startup probe failed: {wrong}")
            return
        self._is_started = True
        readiness = self._container.get("readinessProbe")
        self._tell_ready(readiness is None)
        asking: list[Coroutine[Any, Any, object]] = []
        if readiness is not None:
            asking.append(tell_changes(readiness, self._ask, self._tell_ready))
        if "livenessProbe" in self._container:
            asking.append(self._end_when_dead(process))
        await asyncio.gather(*asking)

    async def _end_when_dead(self, process: Container) -> None:
        wrong = await until_it_fails(self._container["livenessProbe"], self._ask)
        if not self._is_leaving.is_set():
            await self._end(process, f"liveness probe failed: {wrong}")

    async def _end(self, process: Container, why: str) -> None:
        self._note(why)
        process.terminate()
        await asyncio.sleep(_LONGEST_BACKOFF_S)
        process.kill()

    def _tell(self, what: str) -> None:
        """A test that fails shows it: the log goes with its pod."""
        print(f"{self._container['name']} at {self._asked.address} {what}", file=sys.stderr)

    def _note(self, what: str) -> None:
        """Where `kubectl logs` shows it, since there are no events here."""
        with self._log.open("a") as log:
            log.write(f"{what}\n")

    async def _pre_stop(self) -> None:
        action = self._container.get("lifecycle", {}).get("preStop", {})
        if "exec" in action:
            code, said = await self._run_inside(action["exec"]["command"])
            self._tell(f"has heard of its end: exit code {code}: {said}")
            if code:
                self._note(f"preStop failed: exit code {code}: {said}")
        elif "sleep" in action:
            await asyncio.sleep(action["sleep"]["seconds"])
        elif "httpGet" in action:
            with contextlib.suppress(OSError):
                await get(action["httpGet"], self._asked)

    async def _ask(self, probe: Object) -> str:
        return await failure_of(probe, self._asked)

    async def _run_inside(self, command: Sequence[str]) -> tuple[int, str]:
        if self._process is None:
            return 1, "the container does not run"
        return await self._process.run_inside(command)

    def _tell_ready(self, is_ready: bool) -> None:
        self.is_ready = is_ready
        self._changed()

    def _say(self, state: Object) -> None:
        self._state = state
        self._changed()


def _comes_again(restart: str, code: int) -> bool:
    return restart == "Always" or (restart == "OnFailure" and code != 0)
