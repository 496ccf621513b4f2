"""Who a worker is: a stable id, and an incarnation that is new with every process."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass


class Role(enum.StrEnum):
    """What a worker is for. Every engine can do both; the role says what it is asked to do."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class WorkerKey:
    """One process of one worker: what late messages are checked against."""

    worker_id: str
    incarnation: str


def new_incarnation() -> str:
    """A name that no process before this one had."""
    return uuid.uuid4().hex


def new_request_id() -> str:
    """A request id for a client that gave none."""
    return f"req-{uuid.uuid4().hex}"
