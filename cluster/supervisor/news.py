"""What a supervisor tells whoever watches: a terminal, a log, a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cluster.supervisor.failure import ProcessFailure


@dataclass(frozen=True, slots=True)
class Loading:
    """A process is at a phase of its start; `fraction` is None when the end is not known."""

    name: str
    phase: str
    fraction: float | None


@dataclass(frozen=True, slots=True)
class Serving:
    """A process takes requests."""

    name: str
    pid: int
    address: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Restarting:
    """A process died and will be started again."""

    failure: ProcessFailure
    delay_s: float


@dataclass(frozen=True, slots=True)
class Warned:
    """A process logged a warning or an error."""

    name: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """These processes have been asked to finish."""

    names: tuple[str, ...]
    grace_s: float


News = Loading | Serving | Restarting | Warned | Stopping
Watcher = Callable[[News], None]
