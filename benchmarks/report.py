"""How a figure is shown: beside its physical floor and its goal, and kept with its machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernels.cpu.native_sources import own_levels

NEAR_FLOOR = 1.25
"""How far above the floor a figure may be where the floor itself is above the goal."""


class Verdict(StrEnum):
    """What a row says about its goal."""

    NO_GOAL = ""
    MET = "met"
    MISSED = "MISSED"
    FLOOR_ABOVE_GOAL = "goal below this machine's floor"
    """Nothing could meet the goal here; the figure is near the floor."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure; smaller is better. `floor` is what the hardware allows, in the same unit."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    goal: float | None = None
    spread: tuple[float, float] | None = None
    """Smallest and largest of the rounds whose median `value` is."""

    @property
    def verdict(self) -> Verdict:
        """Whether the goal is met, where there is one."""
        if self.goal is None:
            return Verdict.NO_GOAL
        if self.value <= self.goal:
            return Verdict.MET
        if self.floor is not None and self.goal < self.floor and self._is_near_floor(self.floor):
            return Verdict.FLOOR_ABOVE_GOAL
        return Verdict.MISSED

    def _is_near_floor(self, floor: float) -> bool:
        return self.value <= NEAR_FLOOR * floor


def median_row(
    name: str,
    values: Sequence[float],
    unit: str,
    floor: float | None = None,
    goal: float | None = None,
) -> Row:
    """The median of the rounds, with their spread."""
    spread = (min(values), max(values))
    return Row(name, statistics.median(values), unit, floor, goal, spread)


def exit_code(rows: Sequence[Row]) -> int:
    """1 when a goal is missed that this machine allows."""
    return int(any(row.verdict is Verdict.MISSED for row in rows))


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def print_table(title: str, rows: Sequence[Row]) -> None:
    """To stdout, one line a figure."""
    print(f"\n{title} (load average {os.getloadavg()[0]:.1f})")
    print(f"  {'':44}{'value':>10} {'floor':>10} {'x floor':>8} {'goal':>10}  rounds")
    for row in rows:
        line = f"  {row.name:44}{_number(row.value)} {_cells(row)} {_spread(row)} {row.unit}"
        print(f"{line} {row.verdict}".rstrip())


def _cells(row: Row) -> str:
    ratio = f"{row.value / row.floor:8.2f}" if row.floor else f"{'-':>8}"
    return f"{_number(row.floor)} {ratio} {_number(row.goal)}"


def _number(value: float | None) -> str:
    """Ten characters, three digits or all before the point."""
    if value is None:
        return f"{'-':>10}"
    return f"{value:10,.0f}" if value >= 100 else f"{value:10.3g}"


def _spread(row: Row) -> str:
    if row.spread is None:
        return f"{'-':^15}"
    return f"{'..'.join(_number(end).strip() for end in row.spread):^15}"


def write_json(
    path: Path | None, name: str, rows: Sequence[Row], details: Mapping[str, object] | None = None
) -> None:
    """Keeps the rows with the machine, the versions and the date, `details` after them; nothing
    when `path` is None."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {"name": name, **machine(), "rows": [_as_json(row) for row in rows]}
    report |= details or {}
    path.write_text(json.dumps(report, indent=1) + "\n")


def _as_json(row: Row) -> dict[str, object]:
    return {key: value for key, value in asdict(row).items() if value is not None} | (
        {"verdict": row.verdict} if row.goal is not None else {}
    )


def machine() -> dict[str, object]:
    """What the figures were taken on."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu_model(),
        "native_level": next((level.name for level in own_levels()), "none"),
        "cores": os.cpu_count(),
        "load_average_1min": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "grpcio", "nixl-cu13", "numpy")},
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
