"""The chapters of `splitserve --help`, under which docs/cli.md shows every command."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

CHAPTERS: dict[str, tuple[str, ...]] = {
    "Processes": ("serve", "router", "prefill-worker", "decode-worker", "planner"),
    "Looking at a fleet": ("status", "top", "get", "describe", "blocks", "events"),
    "Where time and money go": ("explain", "routes", "trace", "slow", "cost"),
    "Changing a fleet": (
        *("scale", "flip", "drain", "cordon", "uncordon"),
        *("rollout", "adapters"),
    ),
    "Whether all is well": ("doctor", "support-bundle"),
    "Questions, models and keys": ("chat", "models", "quality", "keys"),
    "Settings": ("config", "completion", "version"),
}
"""Commands, or groups of them, in the order in which they are told."""


class ChapteredGroup(TyperGroup):
    """Tells its commands by chapter; one that no chapter names is not told."""

    def list_commands(self, ctx: Any) -> list[str]:
        """By chapter."""
        return [name for names in CHAPTERS.values() for name in names if name in self.commands]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """What each does begins in one column, whatever its chapter."""
        widest = max(map(len, self.commands))
        room = formatter.width - 6 - widest
        for title, names in CHAPTERS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(widest), self.commands[name].get_short_help_str(room))
                        for name in names
                    ]
                )
