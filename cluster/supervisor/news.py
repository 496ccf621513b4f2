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
    """A process takes requests, or is a spare that could."""

    name: str
    pid: int
    address: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Retiring:
    """A process takes no new requests any more, and will end."""

    name: str


@dataclass(frozen=True, slots=True)
class Promoted:
    """A spare worker has a place in the fleet: it takes requests."""

    name: str


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


News = Loading | Serving | Retiring | Promoted | Restarting | Warned | Stopping
Watcher = Callable[[News], None]
