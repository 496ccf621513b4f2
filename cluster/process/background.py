"""Who owns what runs in the background, and who hears of its end.

    keep(name, make)    runs for ever; an end is logged with its cause and it is started again,
                        each time later (0.1 s .. 5 s); back to the start after a minute of life
    need(name, work)    the process is of no use without it: its end is told to `on_loss`
    once(name, work)    runs to its end by itself; a failure is logged with its cause
    thread(name, run)   a thread that is needed: its end is told to `on_loss`

Nothing else in the project makes a task that outlives the function that made it, or a thread; but
for one long call (thread_call.py), the log (log_writer.py, whose writers see that it lives), the
reader of KV blocks, whose engine has no event loop and asks for its death at every poll, and what
reads experts that move (engine/model/experts/staging_thread.py), whose layer stays as it is
without it, and what reads an adapter (engine/model/adapters/rank_adapters.py), which counts as
failed where nothing is heard of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from cluster.deadline import Clock, Sleep
from cluster.errors import SplitserveError
from cluster.logs import get_logger
from cluster.process.backoff import Backoff

Work = Coroutine[Any, Any, object]
_log = get_logger("background")


@dataclass(frozen=True, slots=True)
class Loss:
    """Something needed has ended."""

    name: str
    cause: BaseException | None
    """None: it returned, though nobody had asked it to."""

    def __str__(self) -> str:
        if self.cause is None:
            return f"{self.name} has ended"
        return f"{self.name} has failed: {type(self.cause).__name__}: {self.cause}"


class CancelledByOthers(Exception):
    """Somebody has cancelled what a task waits for, and not the task: for the task a failure like
    any other, though asyncio raises the same in both cases."""


OnLoss = Callable[[Loss], None]
"""Called on the event loop's thread, at most once for each thing lost."""


class Background:
    """The tasks and threads of one component. All calls from one event loop, `close` once."""

    def __init__(
        self, on_loss: OnLoss, *, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        """`on_loss` ends the process, or the component that cannot go on."""
        self._on_loss = on_loss
        self._clock = clock
        self._sleep = sleep
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._is_closed = False

    def keep(self, name: str, make: Callable[[], Work]) -> asyncio.Task[None]:
        """Runs `make()` again whenever it ends. Cancel the task to be rid of it."""
        return self._own(name, self._kept(name, make))

    def need(self, name: str, work: Work) -> asyncio.Task[None]:
        """An end that `close` or a cancel did not bring about is a loss."""
        return self._own(name, self._needed(name, work), work)

    def once(self, name: str, work: Work) -> asyncio.Task[None]:
        """The task is done when `work` is; its failure is in the log and nowhere else."""
        return self._own(name, _logged(name, work), work)

    def thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Starts a daemon thread. `run` must return after what stops it, before `close`, or
        its return counts as a loss."""
        loop = asyncio.get_running_loop()

        def guarded() -> None:
            cause: BaseException | None = None
            try:
                run()
            except BaseException as error:  # the thread ends here either way
                cause = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left
                loop.call_soon_threadsafe(self._lose, Loss(name, cause))

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    async def close(self) -> None:
        """Cancels all tasks and waits for them. Threads are stopped by whoever started them."""
        self._is_closed = True
        await cancel(self._tasks)

    def _own(
        self, name: str, guarded: Coroutine[Any, Any, None], work: Work | None = None
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(guarded, name=name)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        if work is not None:  # cancelled before it began, it would be reported as never awaited
            task.add_done_callback(lambda done: work.close())
        return task

    async def _kept(self, name: str, make: Callable[[], Work]) -> None:
        backoff = Backoff(first_s=0.1, longest_s=5.0)
        while True:
            began = self._clock()
            cause: Exception | None = None
            try:
                await completed(make())
            except Exception as error:
                cause = error
            delay_s = backoff.next_delay_s(healthy_s=self._clock() - began)
            _log.error(
                "a background task has ended; it is started again",
                what=name,
                cause=repr(cause) if cause else "it returned",
                delay_s=delay_s,
                exc_info=_unexpected(cause),
            )
            await self._sleep(delay_s)

    async def _needed(self, name: str, work: Work) -> None:
        cause: BaseException | None = None
        try:
            await completed(work)
        except Exception as error:
            cause = error
        self._lose(Loss(name, cause))

    def _lose(self, loss: Loss) -> None:
        if not self._is_closed:
            _log.error(
                "a part that the process needs has ended",
                what=loss.name,
                cause=str(loss),
                exc_info=_unexpected(loss.cause),
            )
            self._on_loss(loss)


def nothing_needed(loss: Loss) -> None:
    """An OnLoss for a component that only uses `keep` and `once`."""
    raise AssertionError(f"nothing here is needed: {loss}")


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancels the tasks and waits until each has ended, whatever it ends with."""
    pending = list(tasks)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def completed(work: Work) -> object:
    """What `work` returns. Raises CancelledError only when the task that waits here is cancelled,
    and CancelledByOthers in its place otherwise."""
    try:
        return await work
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise CancelledByOthers("what it waited for was cancelled") from cancelled


async def until_one_ends(*works: Work) -> int:
    """Runs parts of one thing side by side until the first ends; cancels the others and waits for
    them. Which one that was, counted from 0; of several at once, the one that is named first.

    Raises what it failed with. Of several that end at once the cause is raised: a failure and not
    a return, our own bug and not a typed error, which may only follow from it, and then what came
    first.
    """
    tasks = [asyncio.create_task(completed(work)) for work in works]
    in_order: list[asyncio.Task[object]] = []
    try:
        in_order += await _first_ended(tasks)
        _raise_failure_of(in_order)
        return min(tasks.index(task) for task in in_order)
    finally:  # this frame is in the trace of what is raised, which a task in turn has
        tasks.clear()
        in_order.clear()


async def _first_ended(tasks: list[asyncio.Task[object]]) -> list[asyncio.Task[object]]:
    """Those that ended at once, in their order; all others are cancelled."""
    ended: list[asyncio.Task[object]] = []
    one_has_ended = asyncio.Event()  # asyncio.wait costs a router's request 20 us
    for task in tasks:
        task.add_done_callback(ended.append)
        task.add_done_callback(lambda _: one_has_ended.set())
    try:
        await one_has_ended.wait()
        at_once = [task for task in tasks if task.done()]
    finally:
        await cancel(tasks)
    return [task for task in ended if task in at_once]


def _raise_failure_of(tasks: list[asyncio.Task[object]]) -> None:
    cause = min(_failures_of(tasks), key=_is_typed, default=None)
    try:
        if cause is not None:
            raise cause
    finally:
        del cause
    for task in tasks:
        task.result()


def _failures_of(tasks: list[asyncio.Task[object]]) -> list[BaseException]:
    return [error for task in tasks if not task.cancelled() and (error := task.exception())]


def _is_typed(error: BaseException) -> bool:
    return isinstance(error, SplitserveError)


async def _logged(name: str, work: Work) -> None:
    try:
        await completed(work)
    except Exception as error:
        _log.error(
            "a background task failed", what=name, cause=repr(error), exc_info=_unexpected(error)
        )


def _unexpected(cause: BaseException | None) -> BaseException | None:
    """What a trace belongs to; a typed error says all in its message."""
    return None if isinstance(cause, SplitserveError) else cause
