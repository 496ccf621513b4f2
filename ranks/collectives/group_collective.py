"""What a rank of a group can do with the others, beyond what a recorded decoder asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from cluster.sharding import Rank
from kernels.tape.collective import ExpertCollective

DEADLINE_S = 10.0
"""How long a rank waits in one call for others that nobody has given up."""
REDUCED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""What can be summed: in float32, rounded once."""


class GroupCollective(ExpertCollective, Protocol):
    """A rank's way to its group, from joining it to `close`.

    One thread at a time. A call that raises RankLost was the last one: all that come after raise it
    as well, and the group is formed anew, in another generation.
    """

    @property
    def waited_s(self) -> float:
        """Seconds that this rank has waited for others, in all: the ranks' skew. 0 where only a
        device could say it; over TCP with the time that the bytes took."""

    @property
    def called_s(self) -> float:
        """Seconds that this rank has been in calls, in all: `waited_s`, and what else they took."""

    @property
    def in_call_since_s(self) -> float | None:
        """When the call began in which this rank waits, on time.monotonic; None between two calls.
        Any thread may ask."""

    def broadcast(self, rows: torch.Tensor, root: int) -> None:
        """The rows of `root` to all others, in place; contiguous, of one shape at every rank."""

    def meet(self, deadline_s: float) -> None:
        """Returns when all ranks have called it: at the start, when some still load weights.
        Raises RankLost for those that have not come by then."""

    def wait_until_landed(self, deadline_s: float | None = None) -> None:
        """Returns when all that was called until now is computed: at once where calls wait for that
        themselves, for the current stream on a GPU, by then; None: by the deadline of each call.
        Raises RankLost, also for a call that was given up meanwhile: what it left is worth nothing.
        """

    def abort(self) -> None:
        """The group is over: whatever of it a device waits for, it waits no more. From any thread;
        idempotent."""

    def close(self) -> None:
        """Leaves; idempotent, and allowed after RankLost. Waits for nobody."""


def gathered(
    collective: GroupCollective, rows: torch.Tensor, widths: Sequence[int] = ()
) -> torch.Tensor:
    """See GroupCollective.all_gather; for the host to read at once. Raises RankLost."""
    every = collective.all_gather(rows, widths)
    collective.wait_until_landed()
    return every


def agreed_least(collective: GroupCollective, number: int, device: torch.device) -> int:
    """The smallest number of all ranks, which all call it at once. Raises RankLost."""
    return int(gathered(collective, torch.tensor([[number]], device=device)).min())


def numbers_of_all(
    collective: GroupCollective,
    rows: torch.Tensor,
    num_rows: Sequence[int],
    known: torch.Tensor | None,
) -> torch.Tensor:
    """At the door of an `all_to_all`: how many rows each rank (first index) has for each, on the
    host, contiguous; asked for where they are not known. Raises ValueError, RankLost."""
    ranks = collective.world_size
    require_rows(rows)
    require_counts("num_rows", num_rows, ranks, rows.shape[0])
    if known is None:
        own = torch.tensor([list(num_rows)], device=rows.device)
        return gathered(collective, own).view(ranks, ranks).cpu()
    if (
        known.shape != (ranks, ranks)
        or known.dtype is not torch.int64
        or known.device.type != "cpu"
    ):
        raise ValueError(f"numbers {known}; needed: int64 [{ranks}, {ranks}] on the host")
    if known[collective.rank].tolist() != list(num_rows) or int(known.min()) < 0:
        raise ValueError(f"num_rows {list(num_rows)} of rank {collective.rank}, but {known}")
    return known.contiguous()


def require_rows(rows: torch.Tensor, *, is_summed: bool = False) -> None:
    """At the door of every call. Raises ValueError."""
    if rows.dim() != 2 or not rows.is_contiguous():
        shape, strides = tuple(rows.shape), rows.stride()
        raise ValueError(f"rows of shape {shape} and strides {strides}; needed: contiguous, 2-d")
    if is_summed and rows.dtype not in REDUCED_DTYPES:
        raise ValueError(f"rows of {rows.dtype} cannot be summed; needed: {REDUCED_DTYPES}")


def require_widths(rows: torch.Tensor, widths: Sequence[int], rank: Rank) -> Sequence[int]:
    """Of all ranks: those named, or the own one for each. Raises ValueError."""
    width = rows.shape[1]
    if not widths:
        return [width] * rank.world_size
    if len(widths) != rank.world_size or widths[rank.index] != width:
        raise ValueError(f"widths {list(widths)} where {rank} has {width} columns")
    return widths


def require_counts(name: str, counts: Sequence[int], world_size: int, total: int) -> None:
    """One count for each rank, `total` in all. Raises ValueError."""
    if len(counts) != world_size or sum(counts) != total or min(counts) < 0:
        raise ValueError(f"{name} {list(counts)}; needed: {world_size} that make {total}")
