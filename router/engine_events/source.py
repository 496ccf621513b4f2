"""Where an engine's KV events are to be had, and what has to be known to understand them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

MAX_TOPIC_CHARS = 256


class _ToldSource(msgspec.Struct):
    """Of one rank, as vLLM was told where to publish; other publishers have no endpoint."""

    enable_kv_cache_events: bool = False
    publisher: str | None = None
    endpoint: str | None = None
    replay_endpoint: str | None = None
    topic: str = ""


_told = msgspec.json.Decoder(dict[str, _ToldSource])


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEventSource:
    """One engine's, of one data-parallel rank.

    Requests that are sent to it carry the root of their blocks' names, in hex, as `cache_salt`: by
    that the blocks in its events are known to be of one tenant of ours. One of `salt_ends`
    follows the root there: blocks with another one are found by no request any more.
    """

    pub: str
    """tcp://host:port, to be subscribed to."""
    replay: str = ""
    """tcp://host:port of its past; empty: what is missed is lost, and with it all that is believed
    of its cache."""
    topic: str = ""
    block_size_tokens: int
    """Of the blocks that it looks up whole; those of another size are left out."""
    salt_ends: Callable[[], tuple[str, ...]] = lambda: ("",)
    """By now."""

    @classmethod
    def told(
        cls, body: bytes, host: str, *, block_size_tokens: int, only_there: bool = False
    ) -> EngineEventSource | None:
        """From vLLM's answer to `GET /kv_event_sources`, `host` being where that was asked;
        `only_there`: it names no other one, whatever it says.

        None where it publishes nothing that can be reached from elsewhere, or has several ranks,
        each with a cache of its own. Raises ValueError for an answer that is none.
        """
        told = list(_told.decode(body).values())
        if len(told) != 1 or not told[0].enable_kv_cache_events or told[0].publisher != "zmq":
            return None
        source = told[0]
        pub = _reached(source.endpoint, host, only_there)
        if pub is None or len(source.topic) > MAX_TOPIC_CHARS:
            return None
        return cls(
            pub=pub,
            replay=_reached(source.replay_endpoint, host, only_there) or "",
            topic=source.topic,
            block_size_tokens=block_size_tokens,
        )


def _reached(endpoint: str | None, host: str, only_there: bool) -> str | None:
    """An address to connect to, of one that was bound; None where there is no way from here."""
    if endpoint is None or not endpoint.startswith("tcp://"):
        return None
    bound, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        return None
    if only_there or bound in ("*", "0.0.0.0", "[::]", "::"):
        bound = f"[{host}]" if ":" in host else host
    return f"tcp://{bound}:{port}"
