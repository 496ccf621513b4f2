"""Where a router learns of vLLM servers: a list that an operator wrote, or a registry."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from router.vllm.server_address import VllmAddress


class Discovery(Protocol):
    """The servers that there are. One reader."""

    def servers(self) -> AsyncGenerator[tuple[VllmAddress, ...], None]:
        """All of them, at once and whenever that has changed: who is in no later list
        gets nothing new, and goes with its last request.
        Ends where nothing can change. Raises nothing: one that is away keeps its last list."""
        ...

    @property
    def is_current(self) -> bool:
        """False while the last list holds for want of a newer one."""
        ...


class StaticDiscovery:
    """As named by `--vllm`."""

    is_current = True
    """See Discovery."""

    def __init__(self, addresses: tuple[VllmAddress, ...]) -> None:
        self._addresses = addresses

    async def servers(self) -> AsyncGenerator[tuple[VllmAddress, ...], None]:
        """See Discovery."""
        yield self._addresses
