"""One text worker and the tasks that wait for it, first come first served.

waiting -> asked -> done or refused      the caller leaves: skipped while it waits, forgotten
                                         while it runs
the process ends -> its task's caller is told; the others wait for the next process
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from cluster.errors import InternalError, NotReady, QueueFull, SplitserveError
from router.front.text_work import ReadBody
from router.text_worker.messages import Setup, Task, pack_task
from router.text_worker.text_process import RETRY_AFTER_S, TextProcess, TextProcessEnded

MAX_WAITING = 256
MAX_WAITING_BYTES = 128 * 1024 * 1024


@dataclass(slots=True)
class _Job:
    head: bytes
    body: bytes
    done: asyncio.Future[ReadBody]


class TextLane:
    """`run` it again whenever it ends; `call` at any time; `close` once nobody runs it."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._waiting: deque[_Job] = deque()
        self._num_bytes = 0
        self._arrived = asyncio.Event()

    @property
    def num_waiting(self) -> int:
        """Tasks that no process has been asked yet."""
        return len(self._waiting)

    async def call(self, task: Task, body: bytes = b"") -> ReadBody:
        """See TextWork. Raises QueueFull, and InvalidRequest for a task that cannot be packed,
        before anything is kept."""
        head = pack_task(task, len(body))
        if len(self._waiting) >= MAX_WAITING or self._num_bytes + len(body) > MAX_WAITING_BYTES:
            raise QueueFull("too many large requests at once; try again later", retry_after_s=1.0)
        job = _Job(head, body, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._num_bytes += len(body)
        self._arrived.set()
        return await job.done

    async def run(self) -> None:
        """One process's life. Raises what ended it, when it is not cancelled."""
        process = await TextProcess.start(self._setup)
        ended = asyncio.ensure_future(process.wait_for_end())
        ended.add_done_callback(lambda _: self._arrived.set())
        try:
            while True:
                await self._serve(process, await self._next(ended))
        finally:
            ended.cancel()
            await process.end()

    def close(self) -> None:
        """Who waits is told; idempotent."""
        for job in self._waiting:
            _fail(job, NotReady("this router is shutting down", retry_after_s=RETRY_AFTER_S))
        self._waiting.clear()

    async def _next(self, ended: asyncio.Future[int]) -> _Job:
        """The first whose caller is still there. Raises InternalError when the process ends."""
        while True:
            while self._waiting:
                job = self._waiting.popleft()
                self._num_bytes -= len(job.body)
                if not job.done.done():
                    return job
            if ended.done():
                raise InternalError(f"a text worker ended with {ended.result()}")
            self._arrived.clear()
            await self._arrived.wait()

    async def _serve(self, process: TextProcess, job: _Job) -> None:
        try:
            done = await process.ask(job.head, job.body)
        except SplitserveError as error:
            _fail(job, error)
        except TextProcessEnded as end:
            _fail(job, end.for_client())
            raise
        except asyncio.CancelledError:
            _fail(job, NotReady("this router is shutting down", retry_after_s=RETRY_AFTER_S))
            raise
        except BaseException:
            _fail(job, InternalError("the router failed on this request; its log says why"))
            raise
        else:
            if not job.done.done():
                job.done.set_result(done)


def _fail(job: _Job, error: SplitserveError) -> None:
    if not job.done.done():
        job.done.set_exception(error)
