"""Ranks of several hosts arrive when their models are there: who came first holds for the last."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.errors import ConfigError, RankLost
from kernels.cpu.native_sources import NativeUnavailable
from ranks import ground as ground_module
from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.rendezvous import CollectiveKind, join
from ranks.collectives.segment import SharedSegment
from ranks.collectives.store import await_all_here, join_store, open_store
from ranks.ground import Ground, RingInMemory
from ranks.joining import arrive
from ranks.spawner import RankPlaces

LIMIT_S = 60.0


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """Of a conductor and one rank elsewhere."""
    found = Ground(CollectiveKind.GLOO, RankPlaces(nodes=("here", "there")), tmp_path)
    yield found
    found.close()


class HeldRank:
    """Rank 1, in a thread: it holds, then joins."""

    def __init__(self, ground: Ground) -> None:
        self._launch = ground.launches(b"", None)[1]
        self.collective: GroupCollective | None = None
        self.is_joining = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        arrival = arrive(self._launch)
        with contextlib.closing(arrival):
            arrival.await_all(LIMIT_S)
            self.is_joining.set()
            self.collective = arrival.join(LIMIT_S)

    def await_end(self) -> None:
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


def test_a_rank_that_has_arrived_joins_with_the_conductors_word_and_not_before(
    ground: Ground,
) -> None:
    rank = HeldRank(ground)
    while not ground.is_settled():
        pass
    assert not rank.is_joining.is_set()
    ground.meeting.let_all_join()
    with contextlib.closing(join(ground.meeting.rendezvous, 0, deadline_s=LIMIT_S)):
        rank.await_end()  # to the other side a group that one has left was never whole
    assert rank.collective is not None


def test_a_rank_that_holds_for_a_conductor_that_is_gone_says_so() -> None:
    stores = [open_store("127.0.0.1", 7)]
    mine = join_store("127.0.0.1", stores[0].port, 7, timeout_s=LIMIT_S)
    stores.clear()
    with pytest.raises(RankLost, match="conductor of generation 7") as lost:
        await_all_here(mine, 7, timeout_s=LIMIT_S)
    assert lost.value.ranks == (0,)


def test_a_conductor_without_native_plans_says_so_in_our_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable() -> None:
        raise NativeUnavailable("no compiler is here")

    monkeypatch.setattr(ground_module, "load_plans", unavailable)
    with (
        contextlib.closing(SharedSegment.create(2, 7)) as meeting,
        pytest.raises(ConfigError, match="no compiler is here"),
    ):
        RingInMemory(meeting, tmp_path / "door")
