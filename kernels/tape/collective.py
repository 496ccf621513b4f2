"""What the ranks of one replica do together; kernels know tensors, not how they travel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch


class Collective(Protocol):
    """The ranks that share a replica's matrices. Every rank runs the same operations in one order.

    Called between kernels, on the thread and the stream of the step. All ranks end with equal bits.
    An implementation never waits without a limit; a lost rank is an error of its own, after which
    the step's activations and the blocks it wrote are worth nothing.
    """

    @property
    def world_size(self) -> int:
        """Ranks; 1 has nothing to do, and a tape then records nothing."""

    def all_reduce(self, rows: torch.Tensor) -> None:
        """Sums rows [num_rows, width] over the ranks, in place; contiguous."""

    def all_gather(self, rows: torch.Tensor) -> torch.Tensor:
        """[num_rows, width] of each rank -> [num_rows, world_size * width], rank by rank."""

    def wait_until_landed(self) -> None:
        """Before the host reads what a call has given: it is there, on a device too. Raises for a
        lost rank, which may have left memory that nobody has written."""

    def gather(self, rows: torch.Tensor, root: int) -> torch.Tensor:
        """As `all_gather`, for the rank `root` alone: what the others get is worth nothing, and may
        have no rows."""


class NativeCalls(NamedTuple):
    """What native code asks of a collective, by addresses that are of use as long as it lives.

    add(context, type, values, out, count)   the sums of `count` values over the ranks; 0, or what
                                             the collective makes an error of
    sum_tray(context, num_bytes)             where the values of the next call may be written, if
                                             that is a sum: it moves them no more; null: so many
                                             cannot
    gather_tray(context, num_bytes)          the same, if that is a `gather` for another rank
    gather(context, root, rows, num_rows, row_bytes, out)
                                             `Collective.gather`, the root's own rows being in `out`
                                             already where its `rows` are null; what `add` returns
    """

    add: int
    sum_tray: int
    gather_tray: int
    gather: int
    context: int
    types: Mapping[torch.dtype, int]
    """What can be summed, and the code of each."""


@runtime_checkable
class NativeCollective(Collective, Protocol):
    """Ranks whose sums, and gathers of logits, a native program asks for by itself, without the
    interpreter in between."""

    @property
    def rank(self) -> int:
        """This one, from 0."""

    @property
    def native(self) -> NativeCalls:
        """What such a program is made with."""

    def run_natively(self, program: Callable[[], int]) -> None:
        """Runs a program, which ends at once where a call does not return 0, and returns that.

        Raises what a call of this collective would raise for it; nothing is run once it was left.
        """


class ReceivedRows(NamedTuple):
    """What the other ranks, and this one, had for this rank: their rows, rank by rank."""

    rows: torch.Tensor
    """[sum of num_rows, width]"""
    num_rows: list[int]
    """Of each rank."""


@runtime_checkable
class ExpertCollective(Collective, Protocol):
    """What the ranks do besides where they split the rows of a step and exchange them.

    A decoder whose ranks all have all rows asks for nothing of this.
    """

    @property
    def rank(self) -> int:
        """This one, from 0."""

    def all_gather(self, rows: torch.Tensor, widths: Sequence[int] = ()) -> torch.Tensor:
        """See Collective; `widths` are the columns of each rank, where they differ."""

    def reduce_scatter(self, rows: torch.Tensor, num_rows: Sequence[int]) -> torch.Tensor:
        """Sums rows [sum of num_rows, width] over the ranks: each gets its own [num_rows of it,
        width], of the rows in the order of the ranks. Contiguous; unchanged."""

    def all_to_all(
        self, rows: torch.Tensor, num_rows: Sequence[int], known: torch.Tensor | None = None
    ) -> ReceivedRows:
        """Rows [sum of num_rows, width] to the ranks that they are for, in that order; contiguous.
        Ranks may differ in their numbers, not in the width.

        `known`: int64 [world_size, world_size] on the host, what each rank (first index) has for
        each, the same at every rank. Without it the ranks ask, and the host waits for the answer.
        """
