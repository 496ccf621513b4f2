"""Collectives of ranks with a GPU each, by NCCL. UNTRIED: written from documentation.

No machine with two GPUs was at hand. A call is enqueued on the current stream and returns: nothing
here waits for a device. Who reads a step's results waits with `wait_until_landed`, which looks for
them, for NCCL's errors and at the time. Torch's own watchdog is told to keep out of it: it does not
see what a CUDA graph replays, and what it gives up lets the stream run on over memory that nobody
has written, so that only our own `abort` may. A graph may capture every call but
`all_to_all`, whose numbers the host has to know, once each was made outside of one: NCCL sets up
what it needs for it then. It frees nothing before the last graph that has captured a call of it is
gone, and whoever tells it to waits for that.

Sums are NCCL's: every rank gets the same bits, in an order that NCCL chooses, bfloat16 rounded at
every hop.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
from torch.distributed import DistError
from torch.distributed.distributed_c10d import BroadcastOptions, ProcessGroupNCCL, Store

from cluster.deadline import Deadline
from cluster.errors import RankLost
from cluster.sharding import Rank
from kernels.tape.collective import ReceivedRows
from ranks.collectives.group_collective import (
    DEADLINE_S,
    numbers_of_all,
    require_counts,
    require_rows,
    require_widths,
)
from ranks.collectives.loss import has_left, rank_lost
from ranks.collectives.shm_room import in_little_room
from ranks.collectives.store import claim

_LOOK_S = 50e-6
_LEAVE_S = 1.0
"""For NCCL to free what it has, where the graphs are gone: the process ends next."""
CONNECT_S = 60.0
"""For all ranks, which are there, to set up NCCL's connections: seconds, on large hosts."""
_KEEP_OUT = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}
"""Of torch's watchdog: it neither aborts a collective nor ends the whole process, with SIGABRT and
without our error."""


class NcclCollective:
    """A GroupCollective; one rank's, of the current CUDA device."""

    waited_s = called_s = 0.0
    """See GroupCollective."""

    def __init__(
        self, store: Store, rank: Rank, generation: int, *, deadline_s: float = DEADLINE_S
    ) -> None:
        """Raises ConfigError where another process is this rank already."""
        os.environ.update(_KEEP_OUT)
        self._rank, self._generation, self._deadline_s = rank, generation, deadline_s
        self._store = claim(store, rank.index, generation)
        options = ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=deadline_s)
        self._nccl: Any = ProcessGroupNCCL(self._store, rank.index, rank.world_size, options)
        self._num_meetings = 0
        self._last: Any = None
        self.in_call_since_s: float | None = None
        """See GroupCollective: while this rank waits for what it has called."""
        self._leaving: threading.Thread | None = None

    def connect(self, rows: torch.Tensor, limit_s: float = CONNECT_S) -> None:
        """Meets the others, who have joined, over any rows of this rank's device: NCCL connects in
        its first call, and would wait there without a limit. Raises RankLost, with what there is to
        say of this host's /dev/shm."""
        failed: list[Exception] = []
        thread = threading.Thread(
            target=self._meet_over, args=(rows, limit_s, failed), name="nccl-connect", daemon=True
        )
        thread.start()
        thread.join(limit_s)
        if thread.is_alive():
            self._fail(f"not all ranks have connected in {limit_s:g} s{in_little_room()}")
        for error in failed:
            if isinstance(error, RankLost):
                raise RankLost(f"{error.message}{in_little_room()}") from error
            raise error

    @property
    def rank(self) -> int:
        """See GroupCollective."""
        return self._rank.index

    @property
    def world_size(self) -> int:
        """See Collective."""
        return self._rank.world_size

    def all_reduce(self, rows: torch.Tensor) -> None:
        """See Collective."""
        require_rows(rows, is_summed=True)
        self._enqueue(lambda nccl: nccl.allreduce([rows]))

    def all_gather(self, rows: torch.Tensor, widths: Sequence[int] = ()) -> torch.Tensor:
        """See GroupCollective."""
        require_rows(rows)
        widths = require_widths(rows, widths, self._rank)
        parts = [rows.new_empty((rows.shape[0], width)) for width in widths]
        self._enqueue(lambda nccl: nccl.allgather([parts], [rows]))
        return torch.cat(parts, dim=1)

    def gather(self, rows: torch.Tensor, root: int) -> torch.Tensor:
        """See Collective: every rank gets them."""
        return self.all_gather(rows)

    def reduce_scatter(self, rows: torch.Tensor, num_rows: Sequence[int]) -> torch.Tensor:
        """See ExpertCollective."""
        require_rows(rows, is_summed=True)
        require_counts("num_rows", num_rows, self.world_size, rows.shape[0])
        out = rows.new_empty((num_rows[self.rank], rows.shape[1]))
        parts = [list(torch.split(rows, list(num_rows)))]
        self._enqueue(lambda nccl: nccl.reduce_scatter([out], parts))
        return out

    def all_to_all(
        self, rows: torch.Tensor, num_rows: Sequence[int], known: torch.Tensor | None = None
    ) -> ReceivedRows:
        """See ExpertCollective: the numbers first, for which the host waits, then the rows."""
        mine: list[int] = numbers_of_all(self, rows, num_rows, known)[:, self.rank].tolist()
        out = rows.new_empty((sum(mine), rows.shape[1]))
        self._enqueue(lambda nccl: nccl.alltoall_base(out, rows, mine, list(num_rows)))
        return ReceivedRows(out, mine)

    def broadcast(self, rows: torch.Tensor, root: int) -> None:
        """See GroupCollective."""
        require_rows(rows)
        options = BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        self._enqueue(lambda nccl: nccl.broadcast([rows], options))

    def meet(self, deadline_s: float) -> None:
        """See GroupCollective; by the store, so that a rank that still loads times out no
        collective."""
        self._num_meetings += 1
        keys = [f"met-{self._num_meetings}-{at}" for at in range(self.world_size)]
        lost: tuple[int, ...] = (0,)  # whose store does not answer
        try:
            self._store.set(keys[self.rank], "yes")
            with contextlib.suppress(RuntimeError):
                self._store.wait(keys, timedelta(seconds=deadline_s))
                return
            lost = tuple(at for at, key in enumerate(keys) if not self._store.check([key]))
        except RuntimeError as error:
            raise rank_lost(lost, self.rank, self._generation, deadline_s) from error
        raise rank_lost(lost, self.rank, self._generation, deadline_s)

    def wait_until_landed(self, deadline_s: float | None = None) -> None:
        """See GroupCollective; then the group is aborted."""
        self.in_call_since_s = time.monotonic()
        try:
            self._await_device(self._deadline_s if deadline_s is None else deadline_s)
        finally:
            self.in_call_since_s = None

    def _meet_over(self, rows: torch.Tensor, limit_s: float, failed: list[Exception]) -> None:
        try:
            torch.cuda.set_device(rows.device)  # of this thread
            self.all_gather(rows)
            self.wait_until_landed(limit_s)
        except Exception as error:
            failed.append(error)

    def _await_device(self, limit_s: float) -> None:
        done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        deadline = Deadline.after(limit_s)
        while not done.query():
            self._require_sound()
            if deadline.has_passed:
                self._fail(f"a step did not end in {limit_s:g} s")
            time.sleep(_LOOK_S)
        self._require_sound()  # NCCL lets a stream run on past what it has given up

    def abort(self) -> None:
        """See GroupCollective. NCCL first frees whoever waits on the device, and then waits itself
        for graphs to be gone, which the thread of the steps still has: a thread of its own does."""
        nccl, self._nccl = self._nccl, None
        if nccl is not None:
            self._leaving = threading.Thread(
                target=_abort, args=(nccl,), name="nccl-abort", daemon=True
            )
            self._leaving.start()

    def close(self) -> None:
        """See GroupCollective: aborts, since destroying would wait for the dead."""
        self.abort()
        if self._leaving is not None:
            self._leaving.join(_LEAVE_S)

    def _require_sound(self) -> None:
        """Only who asks a call whether it is done makes it look for NCCL's errors."""
        if self._nccl is None:
            raise has_left()
        if self._last is not None and self._last.is_completed():
            error = self._last.exception()
            if error is not None:
                self._fail(str(error))

    def _fail(self, why: str) -> NoReturn:
        self.abort()
        raise RankLost(f"NCCL gave a collective up ({why}); the group is started anew")

    def _enqueue(self, call: Callable[[Any], Any]) -> None:
        """What comes next on the current stream waits for it; the host does not. Raises RankLost
        for what NCCL says of the others, or of itself."""
        nccl = self._nccl
        if nccl is None:
            raise has_left()
        try:
            work = call(nccl)
            work.wait()
        except DistError as error:
            self._fail(str(error))
        if not torch.cuda.is_current_stream_capturing():  # nobody may ask a call of a graph
            self._last = work


def _abort(nccl: Any) -> None:
    with contextlib.suppress(RuntimeError):  # it says when it has taken too long
        nccl.abort()
