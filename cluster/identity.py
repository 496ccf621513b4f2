"""Who a worker is: a stable id, and an incarnation that is new with every process; and who a tenant
is to workers."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

OWNER_BYTES = 8
UniqueHex = Callable[[], str]
"""32 hexadecimal digits that nobody was given before; a simulation gives its own."""


def unique_hex() -> str:
    """By chance: two are never the same in practice."""
    return os.urandom(16).hex()


class Role(enum.StrEnum):
    """What a worker is for. Every engine can do both; the role says what it is asked to do."""

    PREFILL = "prefill"
    DECODE = "decode"


class WorkerKey(NamedTuple):
    """One process of one worker: what late messages are checked against.

    A tuple, since each request looks it up 24 times: its hash takes 0.04 us, a dataclass's 0.1.
    """

    worker_id: str
    incarnation: str


def new_incarnation(draw: UniqueHex = unique_hex) -> str:
    """A name that no process before this one had."""
    return draw()


def new_request_id(draw: UniqueHex = unique_hex) -> str:
    """A request id for a client that gave none."""
    return f"req-{draw()}"


def owner_of(tenant: str) -> bytes:
    """OWNER_BYTES that say nothing of the tenant: all that is one tenant's has the same."""
    return blake2b(tenant.encode(), digest_size=OWNER_BYTES).digest()
