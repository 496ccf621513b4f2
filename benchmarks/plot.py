"""Tables as pictures: a panel per row, a bar per system, rounds as dots, the floor as a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison import OURS, Comparison
from benchmarks.report import Row

OWN_COLOR, OWN_OTHER_COLOR, PEER_COLOR, FLOOR_COLOR = "#1b6ca8", "#7fb2d6", "#b8b8b8", "#c0392b"


def plot_comparisons(works: Sequence[Comparison], path: Path) -> None:
    """Writes a PNG."""
    figure, axes = _panels(len(works))
    for axis, work in zip(axes, works, strict=False):
        systems = work.systems()
        colors = [_color(system) for system in systems]
        axis.barh(systems, [work.median(system) for system in systems], color=colors)
        for system in systems:
            axis.plot(work.taken[system], [system] * len(work.taken[system]), "k.", markersize=3)
        _finish(axis, _wrapped(work.name), work.unit, work.floor)
    figure.savefig(path, dpi=120)


def plot_rows(title: str, rows: Sequence[Row], path: Path) -> None:
    """Rows of one table that have a floor, as multiples of it. Writes a PNG."""
    shown = [(row, row.value / row.floor) for row in rows if row.floor]
    figure, axis = _bars(title, [row for row, _ in shown], [times for _, times in shown])
    axis.axvline(1.0, color=FLOOR_COLOR, linestyle="--")
    axis.set_xlabel("times the floor of this machine (dashed)")
    figure.savefig(path, dpi=120)


def plot_bars(title: str, rows: Sequence[Row], path: Path) -> None:
    """Rows of one table in one unit. Writes a PNG."""
    figure, axis = _bars(title, rows, [row.value for row in rows])
    axis.set_xlabel(rows[0].unit)
    figure.savefig(path, dpi=120)


@dataclass(frozen=True, slots=True)
class Line:
    """One of a panel."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


def plot_lines(
    title: str, panels: Mapping[str, Sequence[Line]], axes: tuple[str, str], path: Path
) -> None:
    """Lines over each other, a panel beside the other, both axes by powers. Writes a PNG."""
    import matplotlib.figure

    size = (5.5 * len(panels), 4.0)
    figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=10)
    places = figure.subplots(1, len(panels), squeeze=False, sharey=True).flat
    for axis, (name, lines) in zip(places, panels.items(), strict=True):
        for line, color in zip(lines, (OWN_COLOR, PEER_COLOR, FLOOR_COLOR), strict=False):
            axis.loglog(line.x, line.y, "o-", color=color, markersize=3, label=line.label)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel(axes[0], fontsize=8)
        axis.set_ylabel(axes[1], fontsize=8)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=120)


def _bars(title: str, rows: Sequence[Row], lengths: Sequence[float]) -> tuple[Any, Any]:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(8, 0.34 * len(rows) + 1.2), layout="constrained")
    axis = figure.subplots()
    names = [f"{row.name}: {_rounded(row.value)} {row.unit}" for row in rows]
    axis.barh(names, lengths, color=OWN_COLOR)
    axis.margins(y=0.01)
    axis.invert_yaxis()
    axis.set_title(title, fontsize=10)
    return figure, axis


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _panels(count: int) -> tuple[Any, list[Any]]:
    import matplotlib.figure

    columns = 2
    lines = -(-count // columns)
    figure = matplotlib.figure.Figure(figsize=(11, 2.1 * lines), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, axes


def _finish(axis: Any, title: str, unit: str, floor: float | None) -> None:
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(unit, fontsize=8)
    axis.tick_params(labelsize=8)
    axis.invert_yaxis()
    axis.set_xlim(left=0)
    if floor is not None:
        axis.axvline(floor, color=FLOOR_COLOR, linestyle="--", linewidth=1, label="floor")
        axis.legend(fontsize=7, loc="upper right")


def _color(system: str) -> str:
    if system == OURS:
        return OWN_COLOR
    return OWN_OTHER_COLOR if system.startswith(OURS) else PEER_COLOR


def _wrapped(name: str) -> str:
    return name if len(name) < 50 else name.replace(", ", ",\n", 1)
