"""What two sets of options differ in: of two files, or of a file and a running router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.config.shown import plain
from cli.exit_code import ExitCode
from cluster.masking import Mask
from cli.terminal import say
from cli.view import Sheet, View
from cluster.options import known_specs, read_file


@dataclass(frozen=True, slots=True)
class NamedOptions:
    """Values by option, and whose they are in words."""

    name: str
    values: Mapping[str, Any]


def options_in(file: Path) -> NamedOptions:
    """What a file says, checked, for whichever process. Raises ConfigError."""
    specs = known_specs()
    return NamedOptions(
        str(file),
        {name: plain(given.parsed(specs[name])) for name, given in read_file(file).items()},
    )


def show_difference(left: NamedOptions, right: NamedOptions, form: str) -> ExitCode:
    """FAILED where they differ. What one of them does not say is its default, where all processes
    have the same."""
    differing = sorted(
        name for name in {*left.values, *right.values} if _value(left, name) != _value(right, name)
    )
    mask = Mask()
    data = [
        {
            "option": name,
            "left": mask.data(_value(left, name)),
            "right": mask.data(_value(right, name)),
        }
        for name in differing
    ]
    rows = [
        (each["option"], _words(left, each, "left"), _words(right, each, "right")) for each in data
    ]
    heading = ("OPTION", left.name, right.name)
    View(data, [Sheet(heading, rows)], nothing="no difference").print(form)
    if differing:
        say(f"{len(differing)} differ")
    return ExitCode.FAILED if differing else ExitCode.OK


def _value(side: NamedOptions, name: str) -> Any:
    spec = known_specs().get(name)
    return side.values.get(name, plain(spec.default) if spec is not None else None)


def _words(side: NamedOptions, row: Mapping[str, Any], key: str) -> str:
    value = "-" if row[key] is None else str(row[key])
    return value if row["option"] in side.values else f"{value} (default)"
