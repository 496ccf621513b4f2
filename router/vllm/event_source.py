"""Where a vLLM server publishes its KV events: as it tells by `/kv_event_sources`, or as whoever
found it was told."""

from __future__ import annotations

from dataclasses import replace

from cluster.errors import SplitserveError
from cluster.pairing import Pairing
from router.engine_events.source import EngineEventSource
from router.vllm.server import VllmServer
from router.vllm.wire import check

ASK_TIMEOUT_S = 5.0


async def told_events(server: VllmServer, pairing: Pairing) -> EngineEventSource | None:
    """None where it has none that can be followed: what it has cached is guessed at then."""
    address, size = server.address, pairing.block_size_tokens
    host = address.host_port.rpartition(":")[0]
    if address.events_port is not None:
        replay = "" if address.replay_port is None else f"tcp://{host}:{address.replay_port}"
        return EngineEventSource(
            pub=f"tcp://{host}:{address.events_port}",
            replay=replay,
            block_size_tokens=size,
            salt_ends=lambda: server.salt_ends,
        )
    try:
        answer = await server.wire.get("/kv_event_sources", timeout_s=ASK_TIMEOUT_S)
        body = check(answer, server.name).body
        told = EngineEventSource.told(
            body, host, block_size_tokens=size, only_there=address.is_found
        )
    except (SplitserveError, ValueError):
        return None
    return None if told is None else replace(told, salt_ends=lambda: server.salt_ends)
