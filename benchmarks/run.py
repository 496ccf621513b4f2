"""`make bench`: every benchmark of the project, each in its own process, each beside its floor.

Exit code 1 when a goal is missed that this machine allows. Results land in
benchmarks/results/NAME.json.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = (
    "worker",
    "decoder",
    "kernels",
    "collectives",
    "experts",
    "ranks",
    "index",
    "router",
    "stalls",
    "transfer",
)
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Runs those named on the command line, or all."""
    names = sys.argv[1:] or BENCHMARKS
    codes = [_run(name) for name in names]
    missed = [name for name, code in zip(names, codes, strict=True) if code]
    print(
        f"\nmissed or failed: {', '.join(missed)}"
        if missed
        else "\nevery goal that this machine allows is met"
    )
    return int(bool(missed))


def _run(name: str) -> int:
    command = [sys.executable, "-m", f"benchmarks.bench_{name}"]
    command += ["--json", str(RESULTS / f"{name}.json")]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
