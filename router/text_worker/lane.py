"""One text worker and the tasks that wait for it.

waiting -> asked -> done or refused      the caller leaves: taken out while it waits, forgotten
                                         while it runs
the process ends -> its task's caller is told; the others wait for the next process

A process that ends over a task is followed by another at once, the spare one where there is one: it
was a limit, and no fault of the process. One that cannot start, or ends with nothing to do, is left
to whoever runs the lane. Without a process for texts a router is not ready; that for grammars is in
nobody's readiness, so where none can be had its tasks are refused at once.
"""

from __future__ import annotations

import asyncio
import signal
import time

from cluster.deadline import Clock
from cluster.errors import InternalError, NotReady, SplitserveError
from cluster.logs import get_logger
from cluster.process.background import until_one_ends
from router.front.caller import NOBODY, Caller
from router.front.refusals import internal_error
from router.front.text_work import ReadBody
from router.telemetry.metrics import TextMetrics
from router.text_worker.messages import Setup, Task, pack_task, repeated_bytes, size_of
from router.text_worker.spare import SpareProcess
from router.text_worker.text_process import TaskRefused, TextProcess, TextProcessEnded
from router.text_worker.vital_signs import kill_when_silent
from router.text_worker.waiting import Job, WaitingTasks

LONGEST_ABSENCE_S = 5.0
"""Without a process; then the router says that it is not ready. A start takes one to two."""
_log = get_logger("router.text_worker")


class TextLane:
    """`run` it again whenever it ends; `call` at any time; `close` once nobody runs it."""

    def __init__(
        self,
        setup: Setup,
        name: str,
        metrics: TextMetrics,
        *,
        spare: SpareProcess,
        niceness: int = 0,
        with_grammars: bool = False,
        clock: Clock = time.monotonic,
    ) -> None:
        """`niceness`: how far its processes step back for others on busy cores. `with_grammars`:
        they are for TryGrammar."""
        self._setup = setup
        self._name = name
        self._metrics = metrics
        self._spare = spare
        self._niceness = niceness
        self._with_grammars = with_grammars
        self._clock = clock
        self._waiting = WaitingTasks(clock=clock)
        self._running: Job | None = None
        self._arrived = asyncio.Event()
        self._has_begun = False
        self._absent_since_s: float | None = clock()
        self._has_failed = False
        """To start a process, since there was one."""

    @property
    def num_waiting(self) -> int:
        """Tasks that no process has been asked yet."""
        return len(self._waiting)

    @property
    def absent_s(self) -> float:
        """Without a process; 0.0: there is one."""
        return 0.0 if self._absent_since_s is None else self._clock() - self._absent_since_s

    def expect(self) -> None:
        """From now on there is to be a process: `run` is about to be called first."""
        self._absent_since_s = self._clock()

    def why_not_ready(self) -> str | None:
        """None while there is a process, or has been one a moment ago. Never before the first one:
        who is ready takes the place of another router, which then leaves."""
        if not self._has_begun:
            return f"the {self._name} process has not started yet"
        return self._why_absent()

    async def call(self, task: Task, body: bytes = b"", *, caller: Caller = NOBODY) -> ReadBody:
        """See TextWork. Raises QueueFull, NotReady where no process can be had for it, and
        InvalidRequest for a task that cannot be packed, before anything is kept."""
        if (why := self._why_lost()) is not None:
            raise NotReady(why)
        head = pack_task(task, len(body))
        size = size_of(task, head, body)
        loop = asyncio.get_running_loop()
        job = Job(head, body, size, loop.create_future(), caller, repeated_bytes(task))
        self._waiting.add(job)
        self._arrived.set()
        try:
            return await job.done
        finally:
            self._waiting.leave(job)
            del job  # it has what is raised here, which has this frame in its trace

    async def run(self) -> None:
        """Processes, one after the other. Raises what kept one from starting, or what ended one
        that had nothing to do."""
        try:
            await self._run()
        except Exception:
            self._has_failed = True
            if (why := self._why_lost()) is not None:
                self._refuse_all(NotReady(why))
            raise

    async def _run(self) -> None:
        while True:
            process = self._spare.take() or await TextProcess.start(self._setup)
            try:
                await process.begin(self._niceness, with_grammars=self._with_grammars)
                self._has_begun = True
                self._absent_since_s, self._has_failed = None, False
                self._spare.refill()
                await until_one_ends(
                    self._serve_all(process), self._wake_at_end(process), self._watch(process)
                )
            except TextProcessEnded as end:
                _log.warning(
                    "a text worker ended over a request; another one starts",
                    what=self._name,
                    exit_code=end.exit_code,
                )
            except BaseException as error:
                self._tell_running(error)
                raise
            finally:
                self._running = None
                if self._absent_since_s is None:
                    self._absent_since_s = self._clock()
                self._metrics.restarts.labels(self._name).inc()
                await process.end()

    def close(self) -> None:
        """Who waits is told; idempotent."""
        self._refuse_all(_shutting_down())

    def _why_lost(self) -> str | None:
        """Of a lane for grammars whose process does not come."""
        return self._why_absent() if self._with_grammars and self._has_failed else None

    def _why_absent(self) -> str | None:
        absent_s = self.absent_s
        if self._absent_since_s is None or absent_s < LONGEST_ABSENCE_S:
            return None
        return f"the {self._name} process has not been there for {absent_s:.0f} s"

    def _refuse_all(self, error: NotReady) -> None:
        """Who waits for a process."""
        while (job := self._waiting.first()) is not None:
            job.fail(NotReady(error.message))

    def _tell_running(self, error: BaseException) -> None:
        """Whose task nobody works on any more, because of `error`, which was not the task's."""
        if self._running is None:
            return
        if isinstance(error, asyncio.CancelledError):
            self._running.fail(_shutting_down())
        elif isinstance(error, SplitserveError):
            self._running.fail(TextProcessEnded(-signal.SIGKILL).for_client())
        else:
            self._running.fail(internal_error())

    async def _watch(self, process: TextProcess) -> None:
        await kill_when_silent(process.pid, lambda: self._running is not None, process.kill)

    async def _serve_all(self, process: TextProcess) -> None:
        while True:
            self._running = await self._next(process)
            with self._metrics.task_seconds.labels(self._name).time():
                await self._serve(process, self._running)
            self._running = None

    async def _wake_at_end(self, process: TextProcess) -> None:
        """Never returns: whoever serves says what the end means, which differs by the task."""
        await process.wait_for_end()
        self._arrived.set()
        await asyncio.Event().wait()

    async def _next(self, process: TextProcess) -> Job:
        """The first whose caller is still there. Raises InternalError when the process ends; the
        first then still waits."""
        while True:
            if process.has_ended:
                raise InternalError(f"a text worker ended with {await process.wait_for_end()}")
            if (job := self._waiting.first()) is not None:
                if job.is_wanted:
                    return job
                continue
            self._arrived.clear()
            await self._arrived.wait()

    async def _serve(self, process: TextProcess, job: Job) -> None:
        num_bytes = 0
        try:
            done = await process.ask(job.head, job.body)
            num_bytes = done.num_chars
            if job.is_wanted:
                job.done.set_result(done)
        except TaskRefused as refused:
            num_bytes = refused.num_chars
            job.fail(refused.error)
        except TextProcessEnded as end:
            if end.is_by_limit:
                most_bytes = job.size_bytes + job.repeated_bytes
                num_bytes = self._setup.limits.num_bytes(most_bytes)
            job.fail(end.for_client())
            raise
        finally:
            self._waiting.took(job, num_bytes)


def _shutting_down() -> NotReady:
    return NotReady("this router is shutting down")
