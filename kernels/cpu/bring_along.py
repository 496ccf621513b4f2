"""python -m kernels.cpu.bring_along FOLDER...: libraries of folders of C++, beside their sources.

An image's build runs it: its containers have no compiler, and no folder beside to write to.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernels.cpu.native_sources import bring_along


def main() -> None:
    """Prints what it has built."""
    for folder in sys.argv[1:]:
        for path in bring_along(Path(folder)):
            print(path)


if __name__ == "__main__":
    main()
