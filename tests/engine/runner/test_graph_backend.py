"""In what order a step is recorded on a GPU; a stand-in of torch.cuda writes down what is asked."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator

import pytest
import torch

from cluster.errors import RankLost
from engine.runner.graph_backend import CudaGraphs

DEVICE = torch.device("cuda")


class FakeCuda:
    """Streams by name; a graph that is replayed says so."""

    def __init__(self, log: list[str], name: str = "current") -> None:
        self.log, self.name = log, name

    def wait_stream(self, other: FakeCuda) -> None:
        self.log.append(f"{self.name} waits for {other.name}")

    @contextlib.contextmanager
    def on(self, stream: FakeCuda) -> Iterator[None]:
        self.log.append(f"on {stream.name}")
        yield
        self.log.append(f"off {stream.name}")

    @contextlib.contextmanager
    def recording(
        self, graph: object, pool: str, stream: FakeCuda, capture_error_mode: str
    ) -> Iterator[None]:
        self.log.append(f"record on {stream.name} into {pool}, {capture_error_mode}")
        yield
        self.log.append("recorded")

    def replay(self) -> None:
        self.log.append("replay")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    known = inspect.signature(torch.cuda.graph.__init__).parameters
    assert {"pool", "stream", "capture_error_mode"} <= set(known)
    log: list[str] = []
    cuda = FakeCuda(log)
    fakes: dict[str, Callable[..., object]] = {
        "graph_pool_handle": lambda: "the pool",
        "Stream": lambda device: FakeCuda(log, "side"),
        "current_stream": lambda device: cuda,
        "stream": cuda.on,
        "CUDAGraph": lambda: cuda,
        "graph": cuda.recording,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return log


def test_work_runs_once_on_a_stream_of_its_own_before_it_is_recorded_there(log: list[str]) -> None:
    replay = CudaGraphs(DEVICE).capture(lambda: log.append("work"))
    replay()
    assert log == [
        *("side waits for current", "on side", "work", "off side", "current waits for side"),
        *("record on side into the pool, global", "work", "recorded"),
        "replay",
    ]


def test_a_group_s_ranks_have_all_run_the_work_before_one_records_it(log: list[str]) -> None:
    graphs = CudaGraphs(DEVICE, settle=lambda: log.append("settle"))
    graphs.capture(lambda: log.append("work"))
    between = log[log.index("current waits for side") + 1 :]
    assert between[:2] == ["settle", "record on side into the pool, thread_local"]


def test_a_rank_that_is_lost_before_a_recording_ends_it(log: list[str]) -> None:
    def settle() -> None:
        raise RankLost("rank 1 ended")

    with pytest.raises(RankLost):
        CudaGraphs(DEVICE, settle).capture(lambda: log.append("work"))
    assert log.count("work") == 1
    assert not any(line.startswith("record") for line in log)
