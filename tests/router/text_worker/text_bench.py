"""What tests of text workers share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import psutil
import pytest
from prometheus_client import CollectorRegistry

from cluster.errors import SplitserveError
from cluster.models.card import ModelCard
from router.front.generation_request import ChatPrompt
from router.telemetry.metrics import TextMetrics
from router.text_worker.lane import TextLane
from router.text_worker.limits import TextLimits
from router.text_worker.messages import EncodeChat, Setup
from router.text_worker.spare import SpareProcess
from router.text_worker.text_process import CHILD_MODULE
from router.text_worker.workers import TextWorkers

NAME = "tiny"
CONTEXT_TOKENS = 100_000
HELLO = ChatPrompt((("user", "hello hello"),))
PLENTY = TextLimits.for_bodies_of(8 << 20)
HELLO_TASK = EncodeChat(HELLO.messages, HELLO.rendering, CONTEXT_TOKENS)


@asynccontextmanager
async def workers_of(
    card: ModelCard, limits: TextLimits = PLENTY, *, ignores_unknown_fields: bool = False
) -> AsyncIterator[TextWorkers]:
    workers = TextWorkers(Setup(card, NAME, limits, ignores_unknown_fields))
    await workers.start()
    try:
        yield workers
    finally:
        await workers.close()


def lane_of(setup: Setup, spare: SpareProcess) -> TextLane:
    return TextLane(setup, "alone", TextMetrics(CollectorRegistry()), spare=spare)


async def error_of(work: Awaitable[object]) -> SplitserveError:
    with pytest.raises(SplitserveError) as caught:
        await work
    return caught.value


def pids() -> set[int]:
    """Of the text workers that are alive."""
    return {child.pid for child in psutil.Process().children() if _is_alive(child)}


def _is_alive(child: psutil.Process) -> bool:
    """It may end between two looks."""
    try:
        return child.status() != psutil.STATUS_ZOMBIE and CHILD_MODULE in child.cmdline()
    except psutil.NoSuchProcess:  # also one that is a zombie since
        return False
