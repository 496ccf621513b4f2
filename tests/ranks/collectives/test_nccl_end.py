"""How a rank leaves a group on GPUs, as far as a machine without one can tell.

The library is a stand-in that is as slow to leave as NCCL: it waits for graphs to be gone.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.distributed import distributed_c10d

from cluster.errors import RankLost
from cluster.sharding import Rank

LIMIT_S = 60.0
MODULE = "ranks.collectives.nccl"


class SlowToLeave:
    """In place of a ProcessGroupNCCL."""

    class Options:
        """Of it."""

    def __init__(self, store: object, rank: int, world_size: int, options: object) -> None:
        self.has_been_told, self.graphs_are_gone = threading.Event(), threading.Event()
        self.has_left = threading.Event()

    def abort(self) -> None:
        self.has_been_told.set()
        assert self.graphs_are_gone.wait(LIMIT_S)
        self.has_left.set()


class Step:
    """In place of an event behind a step: done once `is_done` says so."""

    is_done: Callable[[], object] = staticmethod(lambda: False)

    def record(self) -> None:
        """Behind what was enqueued."""

    def query(self) -> bool:
        return bool(self.is_done())


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, over the stand-in."""
    monkeypatch.setattr(distributed_c10d, "ProcessGroupNCCL", SlowToLeave, raising=False)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    found = importlib.import_module(MODULE)
    monkeypatch.setattr(found, "claim", lambda store, rank, generation: store)
    monkeypatch.setattr(torch.cuda, "Event", Step)
    yield found
    sys.modules.pop(MODULE, None)


def collective_of(nccl: ModuleType) -> tuple[Any, SlowToLeave]:
    made = nccl.NcclCollective(None, Rank(0, 2), 7)
    return made, made._nccl


def test_an_abort_does_not_wait_for_graphs_and_ends_who_waits_for_a_step(
    nccl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    collective, library = collective_of(nccl)
    monkeypatch.setattr(Step, "is_done", staticmethod(collective.abort))  # the watch's, meanwhile
    with pytest.raises(RankLost):
        collective.wait_until_landed()
    assert library.has_been_told.wait(LIMIT_S)
    assert not library.has_left.is_set()
    library.graphs_are_gone.set()
    assert library.has_left.wait(LIMIT_S)


def test_a_rank_whose_graphs_are_gone_has_left_when_it_is_closed(
    nccl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    collective, library = collective_of(nccl)
    monkeypatch.setattr(nccl, "_LEAVE_S", LIMIT_S)
    library.graphs_are_gone.set()
    collective.close()
    collective.close()
    assert library.has_left.is_set()
    with pytest.raises(RankLost):
        collective.all_reduce(torch.zeros(1, 4))


def test_a_step_that_ran_on_past_an_aborted_collective_has_not_landed(
    nccl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    collective, library = collective_of(nccl)
    library.graphs_are_gone.set()
    monkeypatch.setattr(Step, "is_done", staticmethod(lambda: True))
    collective.wait_until_landed()
    collective.abort()
    with pytest.raises(RankLost):
        collective.wait_until_landed()


def test_a_wait_for_a_step_ends_with_its_own_deadline(nccl: ModuleType) -> None:
    collective, library = collective_of(nccl)
    library.graphs_are_gone.set()
    with pytest.raises(RankLost, match="did not end in 0.01 s"):
        collective.wait_until_landed(0.01)
    assert library.has_been_told.wait(LIMIT_S)
