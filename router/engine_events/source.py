"""Where an engine's KV events are to be had, and what has to be known to understand them."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.block_hash import cache_root

MAX_SALT_CHARS = 512
"""Of a cache salt in an event; none of ours is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEventSource:
    """One engine's, of one data-parallel rank: as `GET /kv_event_sources` of vLLM tells them.

    Requests that are sent to it name the tenant's salt (`RoutedRequest.tenant_salt`) as their
    `cache_salt`, unless it is empty: by that the blocks in its events are known for the tenant's.
    """

    pub: str
    """tcp://host:port, to be subscribed to."""
    replay: str = ""
    """tcp://host:port of its past; empty: what is missed is lost, and with it all that is believed
    of its cache."""
    topic: str = ""
    block_size_tokens: int
    """Of the blocks that it looks up whole; those of another size are left out."""
    pairing_key: str
    """Of the member that stands for it: root of its blocks' names."""

    def root_of(self, salt: str) -> bytes:
        """The name before a tenant's first block."""
        return cache_root(self.pairing_key, salt)
