"""A test that fails leaves its tasks to the end of its loop, which cancels all that are left.

Cancelled before its server has been stopped, gRPC's task that waits for the next call frees what
the library writes to when the server ends (grpcio 1.85): the process dies of it somewhere else,
mostly while pytest puts the failure into words. So gRPC's tasks come last, when those that stop
their servers have done so.
"""

from __future__ import annotations

import asyncio
from asyncio import runners
from collections.abc import Callable
from typing import Any

_cancel_all: Callable[[asyncio.AbstractEventLoop], None] = runners._cancel_all_tasks  # type: ignore[attr-defined]


def cancel_grpc_servers_last() -> None:
    """From now on, wherever a loop is ended in this process."""
    runners._cancel_all_tasks = _others_first  # type: ignore[attr-defined]


def _others_first(loop: asyncio.AbstractEventLoop) -> None:
    others = [task for task in asyncio.all_tasks(loop) if not _is_grpcs(task)]
    for task in others:
        task.cancel()
    if others:  # of nobody it would be a future of some other loop
        loop.run_until_complete(asyncio.gather(*others, return_exceptions=True))
    _cancel_all(loop)


def _is_grpcs(task: asyncio.Task[Any]) -> bool:
    return getattr(task.get_coro(), "__qualname__", "").startswith("AioServer.")
