"""A rank over TCP whose loop stands still is told from one that works."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from cluster.process.signs_of_life import SignsOfLife
from ranks.channels import Channels
from ranks.plans.own_life import OwnLife
from ranks.plans.plan import RankSign
from ranks.plans.zmq_beats import BeatInbox, BeatSender

LIMIT_S = 60.0
IDLE = SignsOfLife(is_stopped=False, is_busy=False, cpu_ticks=0)
WORKING = SignsOfLife(is_stopped=False, is_busy=True, cpu_ticks=0)


class Signs:
    """What the kernel shows, and a clock that runs on by itself."""

    def __init__(self) -> None:
        self.now = IDLE
        ticks = count(1)
        self.life = OwnLife(lambda: self.now, clock_ns=lambda: next(ticks))


@pytest.fixture
def signs() -> Signs:
    return Signs()


def test_a_loop_that_turns_lives_and_one_that_neither_turns_nor_works_stands_still(
    signs: Signs,
) -> None:
    first = signs.life.last_ns(10)
    assert signs.life.last_ns(20) > first
    last = signs.life.last_ns(20)
    assert [signs.life.last_ns(20) for _ in range(5)] == [last] * 5


def test_a_loop_in_a_long_step_lives_as_long_as_it_works(signs: Signs) -> None:
    signs.life.last_ns(10)
    signs.now = WORKING
    first = signs.life.last_ns(10)
    assert signs.life.last_ns(10) > first
    signs.now = IDLE
    assert signs.life.last_ns(10) == signs.life.last_ns(10)


def test_a_loop_that_waits_for_other_ranks_lives(signs: Signs) -> None:
    first = signs.life.last_ns(10)
    second = signs.life.last_ns(10, waits=True)
    assert signs.life.last_ns(10, waits=True) > second > first
    last = signs.life.last_ns(10)
    assert [signs.life.last_ns(10) for _ in range(3)] == [last] * 3


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[BeatInbox]:
    channels = Channels(tmp_path)
    inbox = BeatInbox(channels, world_size=2, generation=5)
    yield inbox
    inbox.close()
    channels.close()


def test_the_beats_of_a_thread_are_no_turns_of_its_loop(inbox: BeatInbox, signs: Signs) -> None:
    sender = BeatSender(inbox.address, 1, 5, life=signs.life)
    sender.sign = RankSign(num_plans=1, beat_ns=10, waited_s=0.0)

    def sign_after(heard_ns: int) -> RankSign:
        pause = threading.Event()
        for _ in range(int(LIMIT_S / 0.02)):
            sign = inbox.sign_of(1)
            if sign.heard_ns > heard_ns and sign.num_plans == 1:
                return sign
            pause.wait(0.02)
        raise AssertionError("no beat comes")

    first = sign_after(0)
    later = sign_after(first.heard_ns)
    assert later.beat_ns == first.beat_ns > 0
    sender.sign = RankSign(num_plans=1, beat_ns=20, waited_s=0.0)
    sign_after(later.heard_ns)
    assert sign_after(inbox.sign_of(1).heard_ns).beat_ns > first.beat_ns
    sender.close()
