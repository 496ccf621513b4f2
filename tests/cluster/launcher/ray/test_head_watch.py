"""A head that answers is left in peace; one that does not is told. No Ray."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cluster.errors import PlaceLost
from cluster.launcher.ray.head_watch import watch_head

NUM_ANSWERS = 10
SILENCE_S = 3.0


async def test_the_place_is_lost_so_long_after_the_last_answer_and_not_before() -> None:
    asked_at: list[float] = []

    def ask() -> None:
        asked_at.append(len(asked_at) + 1.0)
        if len(asked_at) > NUM_ANSWERS:
            raise RuntimeError("deadline exceeded")

    with pytest.raises(PlaceLost, match="has not answered for 3 s"):
        await watch_head(
            ask,
            silence_s=SILENCE_S,
            clock=lambda: float(len(asked_at)),  # a second for each question
            sleep=lambda seconds: asyncio.sleep(0),
        )
    assert len(asked_at) >= NUM_ANSWERS + SILENCE_S


async def test_a_question_that_never_returns_is_no_answer_and_holds_nobody_up() -> None:
    answers = threading.Event()
    with pytest.raises(PlaceLost, match="start Ray anew"):
        await watch_head(lambda: None if answers.wait() else None, silence_s=0.2)
    answers.set()
