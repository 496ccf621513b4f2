"""Which threads an engine computes on: the native kernels' team, and torch's own pool.

On a CPU with the native kernels torch is left with gathers and sampling, for which a second thread
costs more than it brings. Medians of 25 interleaved rounds, logits [rows, 49152], 2 idle cores,
OMP_WAIT_POLICY=PASSIVE, in ms with 1 | 2 torch threads (spread under 0.5 ms):

    greedy, 1 row   0.06 | 0.16      greedy, 16 rows   0.15 |  0.25
    t=0.8, 1 row    0.47 | 0.92      t=0.8, 16 rows    1.72 |  2.70
    top-p, 1 row    1.42 | 2.32      top-p, 16 rows   10.83 | 13.44

The forward does not depend on torch's threads (9 rounds, team of 2, torch 1 | 2: prefill of 512
tokens 328 | 310 ms within a spread of 303 to 363, 16 sequences 25.9 | 25.8 ms), but it loses where
they spin beside the team: 43 to 80 ms a step were seen without PASSIVE. To repeat:
`python -m benchmarks.bench_decoder --torch-threads 2`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from cluster.process.own_cores import available_cores
from kernels.cpu.native_library import native_library
from kernels.cpu.team import TEAM

TORCH_THREADS_BESIDE_THE_TEAM = 1
"""See above for the measurement."""


def use_threads_to_load(num_threads: int | None, *, num_beside: int = 1) -> int:
    """Both pools get all threads while weights are read and packed, which is torch's work.

    None: every core that this process may use. `num_beside` ranks of a host, this one among them,
    get equal parts of these, and one at least. Returns the number.
    """
    of_host = num_threads if num_threads is not None else available_cores()
    threads = max(1, of_host // num_beside)
    TEAM.resize(threads)
    torch.set_num_threads(threads)
    return threads


def use_threads_to_serve(device: torch.device) -> None:
    """From the first request on. Without the native kernels torch keeps its threads."""
    if device.type == "cpu" and native_library() is not None:
        torch.set_num_threads(TORCH_THREADS_BESIDE_THE_TEAM)


def core_clock_of(device: torch.device) -> Callable[[], float] | None:
    """Seconds of processor time per thread that computes: a step's are what it would have taken
    with its cores to itself. None where a device computes, or torch in threads that spin."""
    if device.type != "cpu" or native_library() is None:
        return None
    return lambda: time.process_time() / TEAM.num_threads
