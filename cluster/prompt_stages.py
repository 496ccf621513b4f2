"""When the parts of a prompt were there, by its decode worker's clock: what a trace is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from protos import worker_pb2

MAX_MS = 24 * 3600 * 1000.0
"""No request lasts longer: a worker that says so has a number wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStages:
    """Milliseconds since the worker read the request; None: it has not been. Fields as in
    `protos/worker.proto`."""

    said_ms: float = 0.0
    reserved_ms: float | None = None
    asked_ms: float | None = None
    accepted_ms: float | None = None
    offered_ms: float | None = None
    first_block_ms: float | None = None
    last_block_ms: float | None = None
    first_token_ms: float | None = None
    source_queue_ms: float = 0.0
    source_prefill_ms: float = 0.0
    num_failed_sources: int = 0

    @property
    def is_sound(self) -> bool:
        """False when a number is none that a worker can have."""
        values = [getattr(self, name) for name in _NAMES]
        return all(
            math.isfinite(each) and 0 <= each < MAX_MS for each in values if each is not None
        )


_NAMES = tuple(item.name for item in fields(PromptStages))
_STAMPS = tuple(item.name for item in fields(PromptStages) if item.default is None)


def stages_to_wire(stages: PromptStages) -> worker_pb2.PromptStages:
    """The names are the same on both sides."""
    return worker_pb2.PromptStages(**{name: getattr(stages, name) for name in _NAMES})


def stages_from_wire(message: worker_pb2.PromptStages) -> PromptStages | None:
    """None for numbers that no worker can have: what is drawn from them would be nonsense."""
    absent = {name for name in _STAMPS if not message.HasField(name)}
    told: dict[str, Any] = {
        name: None if name in absent else getattr(message, name) for name in _NAMES
    }
    stages = PromptStages(**told)
    return stages if stages.is_sound else None
