"""What one rendering of a chat template may use: lines run, CPU time, and text or items made."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from jinja2.exceptions import SecurityError

MAX_LINES = 1_000_000
"""A chat of 1000 messages runs about 20,000 lines in 20 ms."""
MAX_CPU_S = 2.0
"""Of this thread, so that a busy machine changes nothing."""
MAX_UNITS = 64 << 20
"""Characters made by operators, methods and filters, together; a list's item counts as 16."""
ITEM_UNITS = 16
TEMPLATE_FILE = "<template>"

SHORT_UNITS = 4 << 20
"""Of a rendering that surely takes half of it (template_cost.py): 2 ms, were that wrong."""

_rendering = threading.local()


@contextmanager
def template_units(max_units: int = SHORT_UNITS) -> Iterator[None]:
    """The units alone of what `template_budget` limits, for a rendering whose lines are known."""
    _rendering.units_left = max_units
    try:
        yield
    finally:
        del _rendering.units_left


@contextmanager
def template_budget(
    *, max_lines: int = MAX_LINES, max_cpu_s: float = MAX_CPU_S, max_units: int = MAX_UNITS
) -> Iterator[None]:
    """Raises SecurityError inside the block when a limit is passed. This thread only; no nesting.

    Lines are seen through the interpreter's trace hook, set for the block and only in templates.
    """
    lines_left, end_s = max_lines, time.thread_time() + max_cpu_s

    def on_line(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        nonlocal lines_left
        lines_left -= 1
        if lines_left < 0:
            raise SecurityError(f"it runs more than {max_lines:,} lines")
        if time.thread_time() > end_s:
            raise SecurityError(f"it runs longer than {max_cpu_s} s")
        return on_line

    def on_call(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        return on_line if frame.f_code.co_filename == TEMPLATE_FILE else None

    outer = sys.gettrace()
    with template_units(max_units):
        sys.settrace(on_call)
        try:
            yield
        finally:
            sys.settrace(outer)


def spend(units: int) -> None:
    """Asks before something is made; outside a rendering (constants, at compile time) too."""
    left: int = getattr(_rendering, "units_left", MAX_UNITS)
    if units > left:
        raise SecurityError(f"it makes a value of {units:,} characters; {left:,} are left to it")
    if hasattr(_rendering, "units_left"):
        _rendering.units_left = left - units
