"""An engine's process that says how much of a large tensor lies in large pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

NUM_BYTES = 64 << 20
_MODES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
ARE_GIVEN = _MODES.exists() and "[never]" not in _MODES.read_text()


def main() -> None:
    """The bytes are the last word of its log."""
    import torch

    tensor = torch.ones(NUM_BYTES, dtype=torch.uint8)
    rollup = Path("/proc/self/smaps_rollup").read_text()
    found = re.search(r"AnonHugePages: +(\d+) kB", rollup)
    print(int(found[1]) * 1024 if found and len(tensor) else 0, file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
