"""Who else may have a request leave its workers, beside those that fail."""

from __future__ import annotations

from dataclasses import dataclass

from router.dispatch.evacuation import Evacuation
from router.dispatch.preemption import Preemption


@dataclass(frozen=True, slots=True)
class Others:
    """Of a router."""

    evacuation: Evacuation
    preemption: Preemption
