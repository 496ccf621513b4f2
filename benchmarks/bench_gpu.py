"""Every GPU kernel beside the device's own rates, measured in the same run.

    python -m benchmarks.bench_gpu [norms attention ...] [--json PATH]

Without a CUDA device it says so and measures nothing; exit code 0. With one, exit code 1 when a
goal is missed or a table fails. Results are kept in benchmarks/results/gpu.json.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import torch

from benchmarks.gpu.timing import GpuFloor, measure_floor
from benchmarks.report import Row, exit_code, print_table, write_json

TABLES = (
    "norms",
    "adapters",
    "attention",
    "latent",
    "low_bit",
    "mixture",
    "sampling",
    "decode_step",
    "draft_step",
)
"""Modules of benchmarks.gpu, each with `rows`."""
RESULT = Path(__file__).parent / "results" / "gpu.json"
NOT_RUN = "not run: no CUDA device was at hand"


class Table(Protocol):
    """What such a module has."""

    def rows(self, floor: GpuFloor) -> list[Row]:
        """Measures."""


def main() -> int:
    """Those tables that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=TABLES)
    parser.add_argument("--json", type=Path, default=RESULT)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"GPU kernels {NOT_RUN}")
        say_not_run(options.json)
        return 0
    floor = measure_floor()
    measured, failed = measure(options.tables, floor, options.json)
    return 1 if failed else exit_code(measured)


def measure(names: Sequence[str], floor: GpuFloor, path: Path) -> tuple[list[Row], list[str]]:
    """(rows, tables that failed). Each table is kept as soon as it is there; one that fails says
    why and costs the others nothing."""
    rows: list[Row] = []
    failed: list[str] = []
    for name in names:
        try:
            module = cast(Table, importlib.import_module(f"benchmarks.gpu.{name}"))
            measured = module.rows(floor)
        except Exception:
            print(f"{name} failed:\n{traceback.format_exc()}", file=sys.stderr)
            failed.append(name)
            continue
        finally:
            torch.cuda.empty_cache()
        print_table(f"{name} on {floor}", measured)
        rows += measured
        write_json(path, f"gpu kernels on {floor}", rows)
    return rows, failed


def say_not_run(path: Path) -> None:
    """In the results, unless there are results already."""
    if not path.exists():
        path.write_text(json.dumps({"name": "gpu kernels", "status": NOT_RUN}, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
