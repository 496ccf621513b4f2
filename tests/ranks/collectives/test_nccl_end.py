"""What a rank of a group on GPUs makes of NCCL's errors, and how it leaves, as far as a machine
without one can tell.

The library is a stand-in that tells its errors as late as NCCL, and is as slow to leave: it waits
for graphs to be gone.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.distributed import DistBackendError, distributed_c10d

from cluster.errors import RankLost
from cluster.sharding import Rank

LIMIT_S = 60.0
MODULE = "ranks.collectives.nccl"


class Call:
    """In place of a WorkNCCL. Torch's watchdog has a copy of it: this one knows of an error when
    somebody has asked whether it is done."""

    def __init__(self, error: Exception | None = None) -> None:
        self._found = error
        self._known: Exception | None = None

    def wait(self) -> None:
        """The stream waits, not the host."""

    def is_completed(self) -> bool:
        self._known = self._found
        return True

    def exception(self) -> Exception | None:
        return self._known


class SlowToLeave:
    """In place of a ProcessGroupNCCL."""

    class Options:
        """Of it."""

    def __init__(self, store: object, rank: int, world_size: int, options: object) -> None:
        self.has_been_told, self.graphs_are_gone = threading.Event(), threading.Event()
        self.has_left = threading.Event()
        self.called: Callable[[], Call] = Call

    def allreduce(self, tensors: list[torch.Tensor]) -> Call:
        return self.called()

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor]) -> Call:
        return self.called()

    def alltoall_base(self, *arguments: object) -> Call:
        return self.called()

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
    for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING"):
        monkeypatch.setenv(name, "")
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    found = importlib.import_module(MODULE)
    monkeypatch.setattr(found, "claim", lambda store, rank, generation: store)
    monkeypatch.setattr(torch.cuda, "Event", Step)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
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


ROWS = torch.zeros(1, 4)


def test_an_error_of_nccl_is_found_though_only_its_watchdog_was_told(
    nccl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    collective, library = collective_of(nccl)
    library.graphs_are_gone.set()
    library.called = lambda: Call(RuntimeError("remote process exited"))
    monkeypatch.setattr(Step, "is_done", staticmethod(lambda: True))
    collective.all_reduce(ROWS)
    with pytest.raises(RankLost, match="remote process exited"):
        collective.wait_until_landed()
    assert library.has_been_told.wait(LIMIT_S)


def test_nobody_else_aborts_a_collective_or_ends_the_process(nccl: ModuleType) -> None:
    collective_of(nccl)
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert os.environ["TORCH_NCCL_ENABLE_MONITORING"] == "0"


def test_a_call_of_a_graph_is_asked_nothing(
    nccl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    collective, library = collective_of(nccl)
    library.called = lambda: Call(RuntimeError("asked of a call that was captured"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(Step, "is_done", staticmethod(lambda: True))
    collective.all_reduce(ROWS)
    collective.wait_until_landed()


def test_what_torch_says_of_a_call_is_the_loss_of_a_rank(nccl: ModuleType) -> None:
    def refused() -> Call:
        raise DistBackendError("NCCL error: unhandled system error")

    collective, library = collective_of(nccl)
    library.graphs_are_gone.set()
    library.called = refused
    with pytest.raises(RankLost, match="unhandled system error"):
        collective.all_gather(ROWS)
    assert library.has_been_told.wait(LIMIT_S)


def test_numbers_of_rows_are_read_when_they_have_landed_and_not_after_an_abort(
    nccl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    collective, library = collective_of(nccl)
    library.graphs_are_gone.set()
    monkeypatch.setattr(Step, "is_done", staticmethod(lambda: collective.abort() or True))
    with pytest.raises(RankLost):
        collective.all_to_all(ROWS, [1, 0])


def test_where_the_numbers_of_rows_are_known_the_host_waits_for_no_device(
    nccl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked() -> bool:
        raise AssertionError("the host has looked whether a call is done")

    collective, _ = collective_of(nccl)
    monkeypatch.setattr(Step, "is_done", staticmethod(looked))
    received = collective.all_to_all(ROWS, [1, 0], torch.tensor([[1, 0], [3, 0]]))
    assert received.num_rows == [1, 3] and received.rows.shape == (4, 4)


def test_ranks_that_do_not_connect_are_told_of_in_time_and_of_a_containers_memory(
    nccl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()

    def hanging() -> Call:
        never.wait(LIMIT_S)
        return Call()

    collective, library = collective_of(nccl)
    library.graphs_are_gone.set()
    library.called = hanging
    monkeypatch.setattr(nccl, "in_little_room", lambda: "; /dev/shm holds 64 MiB")
    with pytest.raises(RankLost, match=r"connected in 0.01 s; /dev/shm holds 64 MiB"):
        collective.connect(ROWS, 0.01)
    never.set()


def test_ranks_connect_in_a_call_that_lands(
    nccl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    collective, library = collective_of(nccl)
    monkeypatch.setattr(Step, "is_done", staticmethod(lambda: True))
    collective.connect(ROWS, LIMIT_S)
    library.called = lambda: Call(RuntimeError("too late"))
    collective.all_reduce(ROWS)
    with pytest.raises(RankLost, match="too late"):
        collective.wait_until_landed()
    library.graphs_are_gone.set()
