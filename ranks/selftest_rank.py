"""One of the two ranks of the self-test: `python -m ranks.selftest_rank LAUNCH`.

Its launch is JSON; it prints what it measured as the last line.
"""

from __future__ import annotations

import statistics
import sys
import time

import msgspec
import torch

from kernels.tape.collective import ExpertCollective
from ranks.collectives.group_collective import DEADLINE_S, GroupCollective
from ranks.collectives.rendezvous import Rendezvous, join

WIDTH = 576
"""Values of the row that is summed: SmolLM2-135M's hidden size."""
NUM_CHECKED, NUM_CALLS = 20, 400
START_TIMEOUT_S = 30.0
"""For the other rank to import torch on a busy machine."""


class SelftestLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank is told."""

    rank: int
    rendezvous: Rendezvous
    device: str
    """As torch names it; of GPUs it sees its own alone."""


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """What it tells."""

    median_us: float
    """Of one call."""
    are_right: bool


def main() -> None:
    """Joins, sums rows, and tells."""
    launch = msgspec.json.decode(sys.argv[1], type=SelftestLaunch)
    torch.set_num_threads(1)
    device = torch.device(launch.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    collective = join(launch.rendezvous, launch.rank, deadline_s=DEADLINE_S)
    collective.meet(START_TIMEOUT_S)
    sums = measured(collective, torch.empty(1, WIDTH, device=device))
    collective.close()
    print(msgspec.json.encode(sums).decode())


def measured(collective: GroupCollective, rows: torch.Tensor) -> Sums:
    """How long a sum takes, one after the other; whether some are right, and an exchange is."""
    are_right = all([_is_right(collective, rows) for _ in range(NUM_CHECKED)])
    are_right &= exchanges_rightly(collective, rows.device)
    rows.zero_()  # sums of sums would run out of range
    times_us = [_timed_us(collective, rows) for _ in range(NUM_CALLS)]
    return Sums(median_us=statistics.median(times_us), are_right=are_right)


def _is_right(collective: GroupCollective, rows: torch.Tensor) -> bool:
    """Every rank brings its number plus one."""
    ranks = collective.world_size
    rows.fill_(collective.rank + 1)
    collective.all_reduce(rows)
    return bool((rows == ranks * (ranks + 1) // 2).all())


def exchanges_rightly(collective: ExpertCollective, device: torch.device) -> bool:
    """Whether columns are gathered where each rank has another number of them, and rows arrive that
    all ranks but the first send: it is idle, and sends none."""
    rank, ranks = collective.rank, range(collective.world_size)
    widths = [each + 1 for each in ranks]
    own = torch.full((2, widths[rank]), float(rank), device=device)
    columns = collective.all_gather(own, widths)
    num_rows = [0 if rank == 0 else each + 1 for each in ranks]
    sent = torch.full((sum(num_rows), WIDTH), float(rank), device=device)
    received = collective.all_to_all(sent, num_rows)
    collective.wait_until_landed()
    expected = [each for each in ranks for _ in range(widths[each])]
    came = [0 if each == 0 else rank + 1 for each in ranks]
    senders = [each for each in ranks for _ in range(came[each])]
    return (
        columns.tolist() == [expected, expected]
        and list(received.num_rows) == came
        and received.rows.tolist() == [[sender] * WIDTH for sender in senders]
    )


def _timed_us(collective: GroupCollective, rows: torch.Tensor) -> float:
    _wait_for(rows)
    began_s = time.perf_counter()
    collective.all_reduce(rows)
    _wait_for(rows)
    return (time.perf_counter() - began_s) * 1e6


def _wait_for(rows: torch.Tensor) -> None:
    if rows.is_cuda:
        torch.cuda.synchronize(rows.device)


if __name__ == "__main__":
    main()
