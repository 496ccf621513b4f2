"""Words for a shell that completes a command line, and the script that makes it ask for them.

A shell waits for the answer with every press of a key: a fleet that does not answer in time has no
words, and says nothing about it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import typer

from cluster.errors import SplitserveError

LIMIT_S = 0.3
"""From asking a fleet until the last word is there; starting takes its own time before."""
VARIABLE = "_SPLITSERVE_COMPLETE"
"""Set by the script."""


class Shell(StrEnum):
    """Those that there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_SAFE = re.compile(r"[A-Za-z0-9_.:-]+")
"""Names that no shell takes for more: zsh evaluates what it is answered."""


def completion_script(shell: str, program: str = "splitserve") -> str:
    """Of a `Shell`, to be read by it."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    return get_completion_script(prog_name=program, complete_var=VARIABLE, shell=shell)


def understand_shells() -> None:
    """To be called where `VARIABLE` is set: the shell asks, and its dialects are not known yet."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()


def worker_names(context: typer.Context, incomplete: str) -> list[str]:
    """Of the fleet that this command line would ask; none where nobody answers in time."""
    try:
        names = _ask(context.params)
    except (SplitserveError, OSError, TimeoutError):
        return []
    return [name for name in names if name.startswith(incomplete) and _SAFE.fullmatch(name)]


def _ask(words: Mapping[str, Any]) -> list[str]:
    import asyncio

    from cli.fleet_address import resolve_fleet
    from cluster.dial.grpc_dialer import GrpcDialer
    from cluster.join_token import operators_token

    fleet = resolve_fleet(grpc=words.get("grpc"), context=words.get("context"))
    address = fleet.all_routers().partition(",")[0]

    async def names() -> list[str]:
        link = GrpcDialer(operators_token()).operator(address)
        try:
            answer = await link.members(timeout_s=LIMIT_S)
            return sorted(state.member.worker_id for state in answer.members)
        finally:
            await link.close()

    with fleet.let_in():
        return asyncio.run(asyncio.wait_for(names(), LIMIT_S))
