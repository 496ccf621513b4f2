"""Why a process ended, in one line of cause and one of remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cluster.launcher.protocol import ProcessExit
from cluster.startup import StartupFailed

_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(: .*)?")
_REMEDIES = {
    "SIGKILL": "it probably ran out of memory: give it less with --kv-memory-bytes or "
    "--max-context-tokens, or start fewer workers",
    "SIGILL": "this CPU lacks an instruction that the build uses; see `splitserve doctor`",
    "SIGBUS": "shared memory is full: enlarge /dev/shm; see `splitserve doctor`",
    "ModuleNotFoundError": "install what workers need: pip install 'splitserve[worker]'",
}


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """One process's end, for people."""

    name: str
    how: str
    """Such as "exit code 1" or "signal SIGKILL"."""
    cause: str
    remedy: str = ""
    """Empty when the cause says what to do."""


def explain(name: str, ended: ProcessExit, reported: StartupFailed | None) -> ProcessFailure:
    """The process's own words if it had any, else the first exception of what it printed last."""
    if reported is not None:
        return ProcessFailure(name, ended.in_words, f"{reported.code}: {reported.message}")
    cause = _first_exception(ended.tail) or (ended.tail[-1] if ended.tail else "it said nothing")
    where = f"; everything it printed is in {ended.log}" if ended.log else ""
    return ProcessFailure(name, ended.in_words, cause, _remedy(ended, cause) + where)


def _first_exception(lines: tuple[str, ...]) -> str | None:
    return next((line for line in lines if _EXCEPTION.fullmatch(line)), None)


def _remedy(ended: ProcessExit, cause: str) -> str:
    text = f"{ended.in_words} {cause}"
    known = [remedy for word, remedy in _REMEDIES.items() if word in text]
    return known[0] if known else "run `splitserve doctor`"
