"""Ports for listeners that have to be told one.

They are below those that a system gives to whoever asks for any (32768 and up on Linux): so none is
lost to another listener or connection before its own listener is there. None comes twice in one
process; two that test at once may meet, where they have begun within a few hundred of each other.
"""

from __future__ import annotations

import itertools
import random
import socket
from contextlib import suppress

_PORTS = range(12_000, 32_000)
_turns = itertools.count(random.SystemRandom().randrange(len(_PORTS)))
"""Each process begins elsewhere: several test at once."""


def free_port(host: str = "127.0.0.1") -> int:
    """Another one with each call, that nobody listens on now."""
    for turn in itertools.islice(_turns, len(_PORTS)):
        port = _PORTS[turn % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return port
    raise AssertionError("all ports are taken")
