"""`make test` asks the few that failed once more, alone: python -m tests.once_more

On a machine that others use, a few of ten thousand tests of real processes may meet what no
deadline foresees. What fails again, or in numbers, is a fault. What passes alone is told by name,
so that it is looked into: it is not forgotten.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

FEW = 6
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """The exit code: 0 when all of them pass now."""
    names = list(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if not 0 < len(names) <= FEW:
        return 1
    print(f"\n{len(names)} failed beside all others; once more, alone:", *names, sep="\n  ")
    if ended := pytest.main(["--no-header", *names]):
        return int(ended)
    print("FAILED ONCE, PASSED ALONE:", *names, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
