"""Work that is recorded once and replayed: the same kernels on the same memory, without Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch


class GraphBackend(Protocol):
    """Called at load, from the engine's one thread."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Runs `work` (to compile it, any number of times) and records it.

        What is returned repeats it on the current stream, with what the memory holds by then.
        `work` may not wait for the device, and has to touch the same memory every time; what it
        allocates may be used again by other work of this backend as soon as it has ended.
        """


class CudaGraphs:
    """CUDA graphs that share one pool of memory: one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """See GraphBackend."""
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            work()  # compiles kernels and lets libraries allocate, neither of which is recorded
        here.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            work()
        return graph.replay
