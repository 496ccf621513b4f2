"""python -m kernels.cpu.bring_along FOLDER...: libraries of folders of C++, beside their sources.

An image's build runs it: its containers have no compiler, and no folder beside to write to.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from kernels.cpu.native_sources import bring_along


def main() -> None:
    """Prints what it has built, and says where that is nothing."""
    for folder in sys.argv[1:]:
        paths = bring_along(Path(folder))
        for path in paths:
            print(path)
        if not paths:
            print(f"{folder}: nothing for {platform.machine()}, torch computes", file=sys.stderr)


if __name__ == "__main__":
    main()
