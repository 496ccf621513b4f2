"""Which addresses a name stands for now."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

Lookup = Callable[[str], Awaitable[frozenset[str]]]
"""From a name, or an address, which is its own. Raises OSError where nobody knows it now."""


async def addresses_of(name: str) -> frozenset[str]:
    """IPv4, as the system's resolver says, which may take seconds. See Lookup."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    return frozenset(str(place[0]) for *_, place in found)
