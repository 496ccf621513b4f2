"""What a process meets and does not make: the other processes, time, and chance.

Whoever puts a process together makes one World and hands its parts down. Code that decides asks
these, so that a simulator with a World of its own has every decision in its hands. What watches the
operating system (children, their logs, their exit) lives in real time whatever the World says.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import Random

from cluster.deadline import Clock, Sleep
from cluster.dial.dialer import Dialer
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.dial.names import Lookup, addresses_of


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One per process; the defaults are the real one. From the event loop only."""

    dialer: Dialer = field(default_factory=GrpcDialer)
    clock: Clock = time.monotonic
    sleep: Sleep = asyncio.sleep
    """Returns once so many seconds have passed on `clock`."""
    lookup: Lookup = addresses_of
    chance: Random = field(default_factory=Random)
