"""Why a process ended, in one line of cause and one of remedy."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from cluster.extras import how_to_install
from cluster.launcher.output import structured_event
from cluster.launcher.protocol import ProcessExit
from cluster.process.startup import Leaving, StartupFailed

_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(: .*)?")
_REMEDIES = {
    "SIGKILL": "if it ran out of memory, give it less with --kv-memory-bytes or "
    "--max-context-tokens, or start fewer workers",
    "SIGILL": "this CPU lacks an instruction that the build uses; see `splitserve doctor`",
    "SIGBUS": "shared memory is full: enlarge /dev/shm; see `splitserve doctor`",
    "ModuleNotFoundError": f"install what workers need: {how_to_install('worker')}",
}
START_FAILED = "start_failed"
NODE_LOST = "node_lost"
_ERROR_LEVELS = frozenset({"error", "critical"})


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """One process's end, for people."""

    name: str
    how: str
    """Such as "exit code 1" or "signal SIGKILL"."""
    cause: str
    remedy: str = ""
    """Empty when the cause says what to do."""
    kind: str = START_FAILED
    """One of few words, to be counted by."""


def explain(
    name: str, ended: ProcessExit, reported: StartupFailed | None, left: Leaving | None = None
) -> ProcessFailure:
    """The process's own words if it had any, else the first exception of what it printed last.
    `left`: why it took no requests any more, if it has said so."""
    kind = _kind(ended, reported, left)
    if reported is not None:
        cause = f"{reported.code}: {reported.message}"
        return ProcessFailure(name, ended.in_words, cause, kind=kind)
    cause = _cause(ended)
    where = f"; everything it printed is in {ended.log}" if ended.log else ""
    return ProcessFailure(name, ended.in_words, cause, _remedy(ended, cause) + where, kind)


def _kind(ended: ProcessExit, reported: StartupFailed | None, left: Leaving | None) -> str:
    if reported is not None:
        return reported.code
    if left is not None and left.code:
        return left.code
    return NODE_LOST if ended.cause else ended.in_words


def _cause(ended: ProcessExit) -> str:
    """The best of: what the launcher knows, an exception, a logged error, the kernel, the last
    line."""
    if ended.cause:
        return ended.cause
    found = _first_exception(ended.tail) or _last_error(ended.tail)
    if found:
        return found
    if ended.status == -signal.SIGKILL:
        return "killed from outside, or by the kernel for lack of memory"
    plain = [line for line in ended.tail if structured_event(line.encode()) is None]
    return plain[-1] if plain else "it printed no reason"


def _first_exception(lines: tuple[str, ...]) -> str | None:
    return next((line for line in lines if _EXCEPTION.fullmatch(line)), None)


def _last_error(lines: tuple[str, ...]) -> str | None:
    """Of the fleet's own log; the cause that it names, or the exception's last line."""
    events = [structured_event(line.encode()) or {} for line in lines]
    errors = [event for event in events if event.get("level") in _ERROR_LEVELS]
    if not errors:
        return None
    exception = str(errors[-1].get("exception", "")).strip().splitlines()
    cause = str(errors[-1].get("cause", "")) or " ".join(exception[-1:])
    return " ".join([str(errors[-1].get("event", "")), cause]).strip()


def _remedy(ended: ProcessExit, cause: str) -> str:
    text = f"{ended.in_words} {cause}"
    known = [remedy for word, remedy in _REMEDIES.items() if word in text]
    return known[0] if known else "run `splitserve doctor`"
