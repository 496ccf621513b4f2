"""A router whose `top` a test watches on a terminal: python -m tests.cli.inspect.top_router

The command runs in this process, against a router in this process.
"""

from __future__ import annotations

import sys

from cli.inspect.live import show_live
from tests.cli.inspect.fake_router import ADDRESS, FakeRouter

if __name__ == "__main__":
    sys.exit(show_live(ADDRESS, 0.05, dialer=FakeRouter()))  # type: ignore[arg-type]
