"""How slow a core is, here and now. Limits of time on a core, which a busy machine does not reach
any sooner, were chosen on one of 3.6 GHz that nobody shared; caches, clocks and the other thread of
the same core make others two or three times as slow."""

from __future__ import annotations

import argparse
import inspect
import time

USUAL_S = 0.0105
"""On that core, for the work below."""
_TRIES = 3
_SOURCE = inspect.getsource(argparse)


def slowness() -> float:
    """Times as long as on that core, of a piece of Python; at least 1."""
    return max(1.0, min(_seconds() for _ in range(_TRIES)) / USUAL_S)


def _seconds() -> float:
    began_s = time.thread_time()
    compile(_SOURCE, "argparse.py", "exec")
    return time.thread_time() - began_s
