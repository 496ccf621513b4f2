"""How slow a core is, here and now. Limits of time on a core, which a busy machine does not reach
any sooner, were chosen on one of 3.6 GHz, with Python 3.11, that nobody shared; caches, clocks and
the other thread of the same core make others two or three times as slow."""

from __future__ import annotations

import time

USUAL_S = 0.0064
"""On that core, for the work below."""
MOST = 4.0
"""So much slower at most is taken for the core's: beyond that a limit says what it should."""
_TRIES = 3
_FUNCTION = """
def step_{0}(one, other):
    total = one * {0} + other
    while total > one and other:
        total -= other if total % {0} else 1
    return [each for each in range(total) if each != one]
"""
_SOURCE = "".join(_FUNCTION.format(number) for number in range(2, 162))


def slowness() -> float:
    """Times as long as on that core, of a piece of Python: from 1 to MOST."""
    return min(MOST, max(1.0, min(_seconds() for _ in range(_TRIES)) / USUAL_S))


def _seconds() -> float:
    began_s = time.thread_time()
    compile(_SOURCE, "steps.py", "exec")
    return time.thread_time() - began_s
