"""Every option of a process, and who has said it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli.config.roles import OPTIONS_OF, ProcessKind
from cli.view import Sheet, View
from cluster.options import ResolvedOption, resolve_options
from cluster.redaction import Redactor, own_redactor


def options_view(resolved: Mapping[str, ResolvedOption]) -> View:
    """Secrets are redacted."""
    data = options_data(resolved, own_redactor())
    return View(data, [_sheet(data)])


def all_options_view(
    config_file: Path | None, fixed: Mapping[ProcessKind, Mapping[str, object]]
) -> View:
    """Of each process that shares a file and an environment with others. Raises ConfigError."""
    data = {
        kind.value: options_data(
            resolve_options(OPTIONS_OF[kind], fixed.get(kind), config_file=config_file),
            own_redactor(),
        )
        for kind in ProcessKind
        if kind is not ProcessKind.SERVE  # which is all of them
    }
    return View(data, [_sheet(options, title=kind) for kind, options in data.items()])


def _sheet(data: list[dict[str, Any]], title: str = "") -> Sheet:
    rows = [
        (each["option"], _in_words(each["value"]), each["source"], each["variable"], each["help"])
        for each in data
    ]
    heading = ("OPTION", "VALUE", "FROM", "VARIABLE", "MEANS")
    return Sheet(heading, rows, num_wide=2, title=title)


def options_data(
    resolved: Mapping[str, ResolvedOption], redactor: Redactor
) -> list[dict[str, Any]]:
    """For programs: one object for each option."""
    return [
        {
            "option": name,
            "value": redactor.data(plain(each.value)),
            "origin": each.origin.value,
            "source": each.source,
            "default": redactor.data(plain(each.spec.default)),
            "variable": each.spec.variable,
            "help": each.spec.help,
        }
        for name, each in resolved.items()
    ]


def plain(value: Any) -> Any:
    """Of an Enum its value."""
    return getattr(value, "value", value)


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-" if value is None else str(value)
