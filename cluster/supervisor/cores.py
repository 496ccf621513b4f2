"""How workers share CPU cores."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.identity import Role

PREFILL_NICENESS = 2
"""See `share_cores`. Four streams on two cores while 2000-token prompts arrive, at niceness 2:

    ITL p99, beside the quiet one      28.8 against 19.6 ms, 1.47 times
    TTFT, beside that of a13fdb1       6539 against 5743 ms, 1.14 times

To repeat: `python -m benchmarks.bench_interference --before a13fdb1 --rounds 3`. One run of it each
chose the number: the two ratios were 1.1 and 1.18 at 10, 1.2 and 1.20 at 5, 1.5 and 1.14 at 2;
engines with equal shares had 1.6 to 2.2 and 1."""


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

    Why so many threads: one prefill and one decode worker on 2 cores, SmolLM2-135M, bfloat16, one
    stream, medians of 4 interleaved rounds (smallest..largest), other processes on the machine at
    the time, in ms. PREFILL_NICENESS was 10 then, which the first column had: what the tail is at 2
    stands there, and the table decides the threads only.

                                          these, at 10   1 thread each   2 threads each
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
