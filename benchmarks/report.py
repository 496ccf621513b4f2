"""How a figure is shown: beside its physical floor and its goal, and kept with its machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One figure; smaller is better. `floor` is what the hardware allows, in the same unit."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    goal: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the goal is met, where there is one."""
        if self.goal is None:
            return ""
        return "met" if self.value <= self.goal else "MISSED"


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def print_table(title: str, rows: Sequence[Row]) -> None:
    """To stdout, one line a figure."""
    print(f"\n{title}")
    print(f"  {'':44}{'value':>10} {'floor':>10} {'x floor':>8} {'goal':>10}")
    for row in rows:
        print(f"  {row.name:44}{row.value:10.3g} {_cells(row)} {row.unit} {row.verdict}")


def _cells(row: Row) -> str:
    floor = f"{row.floor:10.3g}" if row.floor is not None else f"{'-':>10}"
    ratio = f"{row.value / row.floor:8.2f}" if row.floor else f"{'-':>8}"
    goal = f"{row.goal:10.3g}" if row.goal is not None else f"{'-':>10}"
    return f"{floor} {ratio} {goal}"


def write_json(path: Path | None, name: str, rows: Sequence[Row]) -> None:
    """Keeps the rows with the machine, the versions and the date; nothing when `path` is None."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {"name": name, **machine(), "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(report, indent=1) + "\n")


def machine() -> dict[str, object]:
    """What the figures were taken on."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "grpcio", "nixl-cu12", "numpy")},
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
