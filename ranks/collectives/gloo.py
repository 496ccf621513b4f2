"""Collectives over TCP, by torch's gloo: for ranks on several hosts, or without native code.

Bytes travel by gloo, sums are our own: in float32, in the order of the ranks, so that every rank
has the same bits, and the same that shared memory gives. Gloo's own sum is neither ordered nor good
at bfloat16: 3.1 ms for 512 rows of 576 on two cores, against 0.5 ms in float32.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch.distributed.distributed_c10d import (
    BarrierOptions,
    BroadcastOptions,
    ProcessGroupGloo,
    Store,
)

from cluster.errors import RankLost
from cluster.sharding import Rank, run_of
from kernels.tape.collective import ReceivedRows
from ranks.collectives.group_collective import (
    DEADLINE_S,
    numbers_of_all,
    require_counts,
    require_rows,
    require_widths,
)
from ranks.collectives.loss import given_up, has_left, rank_lost
from ranks.collectives.ordered_sum import ordered_sum
from ranks.collectives.store import absent, claim

DIRECT_BYTES = 64 << 10
"""Up to here every rank gets whole rows and adds them; longer ones are added by parts."""
_LOOK = timedelta(seconds=0.1)
"""While a call waits: whether its group was given up."""
JOIN_S = 30.0
"""For all ranks, which are there, to connect; less where a call has less."""
_GRACE_S = 1.0
"""For those whose call has failed as well to say so."""


class GlooCollective:
    """A GroupCollective; one rank's."""

    def __init__(
        self,
        store: Store,
        rank: Rank,
        generation: int,
        *,
        address: str,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Returns when all ranks have come. `address`: of this machine, at which they reach it;
        `deadline_s`: of each call.

        Raises RankLost when they do not come within JOIN_S, or `deadline_s` where that is less,
        ConfigError where another process is this rank already.
        """
        self._rank, self._generation, self._deadline_s = rank, generation, deadline_s
        self.waited_s = 0.0
        self.in_call_since_s: float | None = None
        """See GroupCollective, both."""
        self._lost: RankLost | None = None
        self._is_aborted = False
        self._gloo: Any = None
        self._store = store
        join_s = min(deadline_s, JOIN_S)
        with self._within(join_s):
            self._store = claim(store, rank.index, generation)
            self._gloo = ProcessGroupGloo(
                self._store, rank.index, rank.world_size, _options(address, join_s)
            )
            self._gloo._set_default_timeout(timedelta(seconds=deadline_s))

    @property
    def called_s(self) -> float:
        """See GroupCollective."""
        return self.waited_s

    @property
    def rank(self) -> int:
        """See GroupCollective."""
        return self._rank.index

    @property
    def world_size(self) -> int:
        """See Collective."""
        return self._rank.world_size

    def all_reduce(self, rows: torch.Tensor) -> None:
        """See Collective. Raises RankLost."""
        require_rows(rows, is_summed=True)
        if rows.nbytes <= DIRECT_BYTES:
            ordered_sum(self._gathered(rows, [rows.shape[0]] * self.world_size), rows)
            return
        runs = [len(run_of(rows.shape[0], Rank(at, self.world_size))) for at in self._ranks]
        own = self.reduce_scatter(rows, runs)
        torch.cat(self._gathered(own, runs), out=rows)

    def all_gather(self, rows: torch.Tensor, widths: Sequence[int] = ()) -> torch.Tensor:
        """See GroupCollective. Raises RankLost."""
        require_rows(rows)
        widths = require_widths(rows, widths, self._rank)
        flat = rows.view(-1, 1)
        parts = self._gathered(flat, [rows.shape[0] * width for width in widths])
        columns = [part.view(-1, width) for part, width in zip(parts, widths, strict=True) if width]
        return torch.cat(columns, dim=1) if columns else rows

    def gather(self, rows: torch.Tensor, root: int) -> torch.Tensor:
        """See Collective: every rank gets them. Raises RankLost."""
        return self.all_gather(rows)

    def reduce_scatter(self, rows: torch.Tensor, num_rows: Sequence[int]) -> torch.Tensor:
        """See ExpertCollective. Raises RankLost."""
        require_rows(rows, is_summed=True)
        require_counts("num_rows", num_rows, self.world_size, rows.shape[0])
        mine = num_rows[self.rank]
        parts = self._swapped(rows, num_rows, [mine] * self.world_size)
        out = rows.new_empty((mine, rows.shape[1]))
        ordered_sum(parts, out)
        return out

    def all_to_all(
        self, rows: torch.Tensor, num_rows: Sequence[int], known: torch.Tensor | None = None
    ) -> ReceivedRows:
        """See ExpertCollective: the numbers first, then the rows. Raises RankLost."""
        numbers = numbers_of_all(self, rows, num_rows, known)
        mine: list[int] = numbers[:, self.rank].tolist()
        return ReceivedRows(torch.cat(self._swapped(rows, num_rows, mine)), mine)

    def broadcast(self, rows: torch.Tensor, root: int) -> None:
        """See GroupCollective. Raises RankLost."""
        require_rows(rows)
        if not 0 <= root < self.world_size:
            raise ValueError(f"rank {root} of {self.world_size}")
        options = BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        self._run(lambda gloo: gloo.broadcast([rows.view(torch.uint8)], options))

    def meet(self, deadline_s: float) -> None:
        """See GroupCollective."""
        options = BarrierOptions()
        options.timeout = timedelta(seconds=deadline_s)
        self._run(lambda gloo: gloo.barrier(options), deadline_s)

    def wait_until_landed(self, deadline_s: float | None = None) -> None:
        """See GroupCollective."""

    def abort(self) -> None:
        """See GroupCollective: a call that waits raises RankLost at its next look."""
        self._is_aborted = True

    def close(self) -> None:
        """See GroupCollective."""
        self._lost = self._lost or has_left()
        self._gloo = None

    @property
    def _ranks(self) -> range:
        return range(self.world_size)

    def _gathered(self, rows: torch.Tensor, num_rows: Sequence[int]) -> list[torch.Tensor]:
        """Those of all ranks, `num_rows` each."""
        to_all = rows.repeat(self.world_size, 1)
        return self._swapped(to_all, [rows.shape[0]] * self.world_size, num_rows)

    def _swapped(
        self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> list[torch.Tensor]:
        """`sent` rows go to each rank, in order; what each has for this one."""
        row_bytes = rows.shape[1] * rows.element_size()
        out = rows.new_empty((sum(received), rows.shape[1]))
        to, given = (tensor.view(torch.uint8).view(-1) for tensor in (out, rows))
        splits = [[count * row_bytes for count in counts] for counts in (received, sent)]
        self._run(lambda gloo: gloo.alltoall_base(to, given, *splits))
        return list(torch.split(out, list(received)))

    def _run(self, call: Callable[[Any], Any], deadline_s: float | None = None) -> None:
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        began_s = self.in_call_since_s = time.monotonic()
        try:
            with self._within(deadline_s or self._deadline_s):
                self._await(call(self._gloo))
        finally:
            self.in_call_since_s = None
        self.waited_s += time.monotonic() - began_s

    def _await(self, work: Any) -> None:
        """Gloo's own abort ends no call that waits for a rank whose connection stands."""
        while not self._is_aborted:
            try:
                work.wait(_LOOK)
                return
            except RuntimeError:
                if work.is_completed():
                    work.wait()  # raises what it failed with, or has just ended well
                    return
        held, self._gloo = [self._gloo], None
        threading.Thread(target=held.clear, name="gloo-end", daemon=True).start()  # it waits, too
        self._lost = given_up(self._generation)
        raise self._lost

    @contextmanager
    def _within(self, deadline_s: float) -> Iterator[None]:
        """What gloo says of a connection that broke, or of time that ran out, as RankLost."""
        try:
            yield
        except RuntimeError as error:
            self._gloo = None  # whoever waits for this rank notices at once
            lost = absent(self._store, self.rank, self.world_size, grace_s=_GRACE_S)
            self._lost = rank_lost(lost, self.rank, self._generation, deadline_s)
            raise self._lost from error


def _options(address: str, deadline_s: float) -> Any:
    """Without an address gloo takes what the machine's own name stands for: often 127.0.1.1."""
    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = timedelta(seconds=deadline_s)
    options._devices = [ProcessGroupGloo.create_device(hostname=address)]
    return options
