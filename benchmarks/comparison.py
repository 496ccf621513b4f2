"""Several systems at the same work, in turns: medians, spreads and ratios round by round."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import machine

OURS = "splitserve"


@dataclass(slots=True)
class Comparison:
    """One kind of work. `taken[system]` has one figure per round, in the order of the rounds."""

    name: str
    unit: str
    floor: float | None = None
    """What the hardware allows, in the same unit."""
    goal: float | None = None
    """How many times as good as the best peer ours should be."""
    higher_is_better: bool = False
    taken: dict[str, list[float]] = field(default_factory=dict)

    def add(self, system: str, value: float) -> None:
        """The figure of one round."""
        self.taken.setdefault(system, []).append(value)

    def median(self, system: str) -> float:
        """Over the rounds."""
        return statistics.median(self.taken[system])

    def ratios(self, peer: str) -> list[float]:
        """How many times as good ours was, per round."""
        pairs = zip(self.taken[OURS], self.taken[peer], strict=True)
        return [ours / theirs if self.higher_is_better else theirs / ours for ours, theirs in pairs]

    def peers(self) -> list[str]:
        """Everyone else, best first; other settings of our own are not peers."""
        others = [name for name in self.taken if not name.startswith(OURS)]
        return sorted(others, key=self.median, reverse=self.higher_is_better)

    def systems(self) -> list[str]:
        """Ours, our other settings, then the peers, best first."""
        own = sorted(name for name in self.taken if name.startswith(OURS))
        return [*own, *self.peers()]

    @property
    def ratio(self) -> float | None:
        """Ours against the best peer: the median of the rounds' ratios."""
        peers = self.peers()
        return statistics.median(self.ratios(peers[0])) if peers else None

    @property
    def is_missed(self) -> bool:
        """Whether the goal was measured and not reached."""
        return self.goal is not None and self.ratio is not None and self.ratio < self.goal


def print_comparison(work: Comparison) -> None:
    """To stdout: every system, ours first, then the ratio and the goal."""
    print(
        f"\n{work.name} ({work.unit}, {'higher' if work.higher_is_better else 'lower'} is better)"
    )
    for system in work.systems():
        values = work.taken[system]
        line = f"  {system:24}{work.median(system):10.4g}   {min(values):.4g}..{max(values):.4g}"
        if not system.startswith(OURS):
            ratios = work.ratios(system)
            line += (
                f"   ours {statistics.median(ratios):.2f}x ({min(ratios):.2f}..{max(ratios):.2f})"
            )
        print(line)
    if work.floor is not None:
        print(f"  {'floor of this machine':24}{work.floor:10.4g}")
    if work.goal is not None and work.ratio is not None:
        verdict = "MISSED" if work.is_missed else "met"
        print(f"  goal {work.goal}x the best peer: {work.ratio:.2f}x, {verdict}")


def write_comparison(
    path: Path | None, name: str, works: Sequence[Comparison], about: dict[str, Any]
) -> None:
    """Keeps every round's figure with machine, versions, date and the systems' own words."""
    if path is None:
        return
    rows = [
        {
            "name": work.name,
            "unit": work.unit,
            "floor": work.floor,
            "goal_ratio": work.goal,
            "higher_is_better": work.higher_is_better,
            "median": {system: work.median(system) for system in work.taken},
            "ratio_to_ours": {peer: statistics.median(work.ratios(peer)) for peer in work.peers()},
            "rounds": work.taken,
        }
        for work in works
    ]
    report = {"name": name, **machine(), "load_average": os.getloadavg(), **about, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
