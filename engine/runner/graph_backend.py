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
    """CUDA graphs that share one pool of memory: one runs at a time.

    Of a group every rank captures its own, of the same work in the same order, with the group's
    collectives inside. The first run of `work` is where NCCL makes what it needs for them, and all
    ranks compute it together; while recording no rank waits for another. UNTRIED on a GPU.
    """

    def __init__(self, device: torch.device, settle: Callable[[], None] | None = None) -> None:
        """`settle` waits, not for ever, for what the ranks of a group have begun together; None:
        this one is alone."""
        self._device, self._settle = device, settle
        self._pool = torch.cuda.graph_pool_handle()
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """See GraphBackend."""
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            work()  # compiles kernels and lets libraries allocate, neither of which is recorded
        here.wait_stream(self._stream)
        if self._settle is not None:
            self._settle()  # what comes next waits for the device, and knows no deadline
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode=self._strictness
        ):
            work()
        return graph.replay

    @property
    def _strictness(self) -> str:
        """What other threads do breaks no recording in a group: NCCL's look at the device, and the
        watch of the ranks may abort what is waited for."""
        return "global" if self._settle is None else "thread_local"
