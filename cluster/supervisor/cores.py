"""CPU cores: how many this process may use, and how workers share them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from cluster.identity import Role

PREFILL_NICENESS = 5
"""See `share_cores`."""
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores(quota_file: Path = _CGROUP_QUOTA) -> int:
    """Cores that the affinity mask and the container's quota leave us; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)
    return max(1, min(cores, _quota_cores(quota_file) or cores))


@dataclass(frozen=True, slots=True)
class CoreShare:
    """What one worker's engine is started with."""

    num_threads: int
    niceness: int = 0


def share_cores(num_cores: int, num_prefill: int, num_decode: int) -> dict[Role, CoreShare]:
    """Threads of each engine, by role, and how far it steps back, where the operator named neither.

    A decode engine gets an equal share of the cores, so that its stream never waits for a core and
    prefill always has one. A prefill engine gets all of its pool's cores, but steps back wherever
    decode wants one: an idle fleet answers with every core, a busy one keeps its streams even.

    One prefill and one decode worker on 2 cores, SmolLM2-135M, bfloat16, medians of 4 interleaved
    rounds (smallest..largest), other processes on the machine at the time, in ms:

                                          this           1 thread each   2 threads each
        TTFT, 512 tokens, idle            368 (339..565)  623 (612..632)  371 (335..376)
        ITL p50, idle                    16.4 (16..17)   15.3 (14..16)   14.0 (13..15)
        ITL p99, idle                    20.8 (19..24)   19.7 (18..21)   20.8 (20..23)
        ITL p50, 2k prompts arrive       18.0 (17..19)   16.2 (15..17)   18.9 (18..20)
        ITL p99, 2k prompts arrive       27.6 (25..30)   20.6 (20..22)   48.6 (24..59)
        TTFT, 2000 tokens, with stream   3367            3481            3425

    Two threads each double the tail that a running stream sees; one each takes 1.7 times as long
    to the first token. To repeat, with `--serve-flags "--num-threads 1"` for one thread each:
    `python -m benchmarks.bench_interference --only 1+1`.
    A colocated deployment has one worker, and so gets every core.
    """
    return {
        Role.DECODE: CoreShare(max(1, num_cores // max(1, num_prefill + num_decode))),
        Role.PREFILL: CoreShare(max(1, num_cores // max(1, num_prefill)), PREFILL_NICENESS),
    }


def _quota_cores(quota_file: Path) -> int | None:
    """Cores of a cgroup v2 quota, rounded up; None without one."""
    try:
        quota, period = quota_file.read_text().split()[:2]
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None
