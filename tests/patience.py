"""Limits of time in tests are there for what hangs, so a slow machine has more of it.

They were chosen on two cores with AVX-512; the same tests have run on cores that gave a quarter of
that, half of them taken by others. What passes costs nothing; what hangs costs this many times its
limit.
"""

from __future__ import annotations

import pytest

PATIENCE = 3.0
"""Times the limit that a test names, of its own and of what it waits for."""


def give_time(item: pytest.Item, default_s: float) -> None:
    """Before it runs; `default_s` where it names no limit."""
    named = item.get_closest_marker("timeout")
    limit_s = float(named.args[0]) if named else default_s
    others = named.kwargs if named else {}
    item.add_marker(pytest.mark.timeout(limit_s * PATIENCE, **others), append=False)
