"""What two sets of options differ in: of two files, or of a file and a running router."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.config.shown import plain
from cli.exit_code import ExitCode
from cli.question import ROUTER_TIMEOUT_S
from cli.view import Sheet, View
from cluster.dial.dialer import Dialer
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.join_token import operators_token
from cluster.options import known_specs, read_file
from cluster.redaction import own_redactor
from protos import router_admin_pb2


@dataclass(frozen=True, slots=True)
class NamedOptions:
    """Values by option, and whose they are in words."""

    name: str
    values: Mapping[str, Any]
    is_whole: bool = False
    """All options of one process; else those that somebody has said."""


def options_in(file: Path) -> NamedOptions:
    """What a file says, checked, for whichever process. Raises ConfigError."""
    specs = known_specs()
    return NamedOptions(
        str(file),
        {name: plain(given.parsed(specs[name])) for name, given in read_file(file).items()},
    )


def options_of_router(address: str) -> NamedOptions:
    """What a running router was started with; passwords are redacted. Raises SplitserveError."""
    answer = asyncio.run(_ask(GrpcDialer(operators_token()), address))
    values = {each.name: json.loads(each.value) for each in answer.options}
    return NamedOptions(f"router {address}", values, is_whole=True)


async def _ask(dialer: Dialer, address: str) -> router_admin_pb2.OptionsResponse:
    link = dialer.operator(address)
    try:
        return await link.options(timeout_s=ROUTER_TIMEOUT_S)
    finally:
        await link.close()


def show_difference(left: NamedOptions, right: NamedOptions, form: str) -> ExitCode:
    """FAILED where they differ. What a file does not say is its default; a router says all of its
    own options, and is not asked for what a file has for others."""
    names = {*left.values, *right.values} - _of_others(left, right)
    if right.is_whole:  # whose passwords are redacted: they are not compared
        left = NamedOptions(left.name, own_redactor().data(left.values))
    differing = [name for name in sorted(names) if _value(left, name) != _value(right, name)]
    rows = [_row(name, left, right) for name in differing]
    cells = [
        (row["option"], _words(left, row, "left"), _words(right, row, "right")) for row in rows
    ]
    sheet = Sheet(("OPTION", left.name, right.name), cells)
    View(rows, [sheet], nothing="no difference").print(form)
    return ExitCode.FAILED if differing else ExitCode.OK


def _of_others(left: NamedOptions, right: NamedOptions) -> set[str]:
    """Options of a file that a router has not."""
    return set(left.values) - set(right.values) if right.is_whole else set()


def _row(name: str, left: NamedOptions, right: NamedOptions) -> dict[str, Any]:
    redactor = own_redactor()
    values = (redactor.data({name: _value(side, name)})[name] for side in (left, right))
    return dict(zip(("option", "left", "right"), (name, *values), strict=True))


def _value(side: NamedOptions, name: str) -> Any:
    """A router of another version may have options that are unknown here."""
    spec = known_specs().get(name)
    return side.values.get(name, None if spec is None else plain(spec.default))


def _words(side: NamedOptions, row: Mapping[str, Any], key: str) -> str:
    value = "-" if row[key] is None else str(row[key])
    return value if row["option"] in side.values else f"{value} (default)"
