"""The router's end of one text worker's process: start it, ask it, end it."""

from __future__ import annotations

import array
import asyncio
import os
import signal
import socket
import time
from contextlib import suppress

from cluster.errors import InternalError, InvalidRequest, NotReady, RequestTooLarge, SplitserveError
from cluster.join_token import JOIN_TOKEN, JOIN_TOKEN_TOO
from cluster.logs import get_logger
from cluster.process.background import until_one_ends
from cluster.process.exit_watch import KILL_TIMEOUT_S
from cluster.process.own_lateness import SeenTimeout
from cluster.process.own_python import module_argv, module_environ
from cluster.process.parent_death import PARENT_PID
from cluster.process.startup import REPORT_FD
from router.front.generation_request import TokenPrompt
from router.front.text_work import ReadBody
from router.text_worker.messages import (
    LENGTHS,
    Begin,
    Ids,
    Refusal,
    Reply,
    Setup,
    TextWorkerReady,
    pack,
)
from router.text_worker.messages import to_router as unpack
from router.text_worker.vital_signs import kill_when_silent

CHILD_MODULE = "router.text_worker.child"
START_TIMEOUT_S = 120.0
"""It takes a second; on a machine whose cores are busy, more."""
TASK_TIMEOUT_S = 120.0
"""Beside the two that end a process long before: its CPU limit while it works, and vital_signs.py
while it does not."""
IDS_AT_ONCE = 16_384
"""Become a list without a rest: 1.4 ms of the event loop; a single prompt is never divided."""
_NOT_ITS_OWN = frozenset({REPORT_FD, JOIN_TOKEN, JOIN_TOKEN_TOO})
_log = get_logger("router.text_worker")


class TextProcess:
    """`start` and `begin` once, then `ask` one at a time, `end` once."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, setup: Setup) -> TextProcess:
        """Returns once the model's texts are loaded. Raises InternalError where that fails."""
        near, far = socket.socketpair()
        with far:
            reader, writer = await asyncio.open_connection(sock=near)
            try:
                process = await _spawn(far)
            except BaseException:
                writer.close()
                raise
        started = cls(process, reader, writer)  # nothing is waited for in between: it is ended
        try:
            await started._load(pack(setup))
        except BaseException:
            await started.end()
            raise
        return started

    async def begin(self, niceness: int, *, with_grammars: bool = False) -> None:
        """A lane has taken it: tasks come, and it steps back so far for other processes. Those with
        grammars come once their tokenizer is loaded. Raises InternalError where that fails."""
        begin = pack(Begin(niceness, with_grammars))
        if with_grammars:
            await self._load(begin)
        else:
            self._writer.write(begin)

    async def ask(self, head: bytes, body: bytes) -> ReadBody:
        """What became of a task, packed in `head`. Raises TaskRefused with what the work raises,
        and TextProcessEnded, after which only `end` may be called."""
        try:
            async with asyncio.timeout(TASK_TIMEOUT_S):
                reply, payload = await self._exchange(head, body)
        except (OSError, EOFError, TimeoutError) as cause:
            raise TextProcessEnded(await self.end()) from cause
        if isinstance(reply, Refusal):
            raise TaskRefused(reply.error(), reply.num_chars)
        assert isinstance(reply, Ids)
        return await _read_body(reply, payload)

    @property
    def pid(self) -> int:
        """Of the process, also after its end."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Asked of the kernel, where it tells: asyncio hears of it a moment later."""
        if self._process.returncode is not None:
            return True
        try:
            look_only = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, look_only) is not None
        except AttributeError:  # another system
            return False
        except ChildProcessError:  # somebody has waited for it just now
            return True

    def kill(self) -> None:
        """Whoever asks or waits hears of its end. Idempotent."""
        if not self.has_ended:  # its own would poll: asyncio loses the exit code
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def wait_for_end(self) -> int:
        """The exit code, negative for a signal."""
        return await self._process.wait()

    async def end(self) -> int:
        """Kills it where it lives; its exit code. One that does not go is given up after
        KILL_TIMEOUT_S. Who is cancelled meanwhile leaves no process either. Idempotent."""
        self._writer.close()
        self.kill()
        gone = asyncio.ensure_future(self._until_gone())  # waited for below, whoever is cancelled
        try:
            return await asyncio.shield(gone)
        except asyncio.CancelledError:
            await gone
            raise

    async def _until_gone(self) -> int:
        try:
            async with SeenTimeout(KILL_TIMEOUT_S, time.monotonic):  # not while we stand ourselves
                return await self._process.wait()
        except TimeoutError:
            _log.error("a text worker cannot be killed and is given up", text_worker_pid=self.pid)
            return -signal.SIGKILL

    async def _load(self, what: bytes) -> None:
        """A process that is stopped meanwhile is killed, which the one that asks hears of. Raises
        InternalError where it does not get ready."""
        watch = kill_when_silent(self.pid, lambda: False, self.kill)
        try:
            await until_one_ends(self._ask_to_load(what), watch)
        except (OSError, EOFError, TimeoutError) as cause:
            raise InternalError(f"a text worker did not start: {cause!r}") from cause

    async def _ask_to_load(self, what: bytes) -> None:
        async with asyncio.timeout(START_TIMEOUT_S):
            reply, _ = await self._exchange(what, b"")
        assert isinstance(reply, TextWorkerReady)

    async def _exchange(self, head: bytes, body: bytes) -> tuple[Reply, bytes]:
        self._writer.write(head)
        if body:
            self._writer.write(body)
        await self._writer.drain()
        lengths = await self._reader.readexactly(LENGTHS.size)
        num_head_bytes, num_payload_bytes = LENGTHS.unpack(lengths)
        reply = unpack(await self._reader.readexactly(num_head_bytes))
        return reply, await self._reader.readexactly(num_payload_bytes)


class TaskRefused(Exception):
    """The work ended with `error`, over texts of so many characters: see ReadBody."""

    def __init__(self, error: SplitserveError, num_chars: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.num_chars = num_chars


class TextProcessEnded(Exception):
    """The process ended over a task; `exit_code` says by what."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the text worker ended with {exit_code}")
        self.exit_code = exit_code

    @property
    def is_by_limit(self) -> bool:
        """The task has passed one, of time or of memory."""
        return self.exit_code in (-signal.SIGXCPU, -signal.SIGABRT)

    def for_client(self) -> SplitserveError:
        """The request did it where a limit was passed; else it was not to blame."""
        if self.exit_code == -signal.SIGXCPU:
            return InvalidRequest("reading this request took more time than one may; shorten it")
        if self.exit_code == -signal.SIGABRT:
            return RequestTooLarge("the request takes more memory than one may; shorten it")
        message = "the process that read this request was lost; come again"
        return NotReady(message)


async def _spawn(link: socket.socket) -> asyncio.subprocess.Process:
    """When this is cancelled, asyncio ends the process."""
    return await asyncio.create_subprocess_exec(
        *module_argv(CHILD_MODULE, str(link.fileno())),
        env=_environ(),
        pass_fds=(link.fileno(),),
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # a signal for the router's terminal is not for it
    )


async def _read_body(ids: Ids, payload: bytes) -> ReadBody:
    """With rests for the loop between prompts."""
    packed = array.array("i")
    packed.frombytes(payload)
    prompts, start, rested_at = [], 0, 0
    for length, text in zip(ids.lengths, ids.texts, strict=True):
        prompts.append(TokenPrompt(packed[start : start + length].tolist(), text))
        start += length
        if start - rested_at > IDS_AT_ONCE:
            rested_at = start
            await asyncio.sleep(0)
    return ReadBody(ids.rest, tuple(prompts), ids.ignored, ids.num_chars)


def _environ() -> dict[str, str]:
    """Nothing secret: it reads what strangers send."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_ITS_OWN}
    return kept | module_environ() | {PARENT_PID: str(os.getpid())}
