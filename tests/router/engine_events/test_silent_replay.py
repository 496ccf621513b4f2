"""An engine whose replay port nobody reaches: what it says live is believed all the same."""

from __future__ import annotations

import asyncio

import pytest
import zmq.asyncio

from cluster.cache_change import CacheChange
from cluster.process.background import cancel
from cluster.process.loop_share import LoopShare
from router.engine_events import replay as replay_module
from router.engine_events.follower import EngineEventFollower
from tests.router.engine_events.rogue_engine import RogueEngine, until
from tests.router.engine_events.test_follower import Listener, block


class Clears(Listener):
    """A listener that counts how often all was forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.num_clears = 0

    def apply(self, change: CacheChange) -> None:
        super().apply(change)
        self.num_clears += change.cleared


async def test_what_is_heard_live_is_kept_while_the_past_is_asked_for_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_module, "ANSWER_TIMEOUT_S", 0.05)
    engine, listener = RogueEngine(), Clears()
    engine.answers = False
    follower = EngineEventFollower(engine.source(), listener, share=LoopShare(), retry_s=0.01)
    context = zmq.asyncio.Context()
    async with engine.running():
        task = asyncio.create_task(follower.run(context))
        await engine.subscribed()
        await engine.publish(block(1))
        await until(lambda: listener.live == {1})
        num_asked = len(engine.asked)
        await until(lambda: len(engine.asked) > num_asked + 2)
        assert (listener.live, listener.num_clears) == ({1}, 0)
        monkeypatch.undo()  # an answer has all its time, so that one question is enough
        engine.answers = True
        await until(lambda: listener.resyncs > 0)
        assert (listener.live, listener.num_clears) == ({1}, 1)
        await cancel([task])
    context.destroy(linger=0)
