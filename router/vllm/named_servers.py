"""The VllmFleet of a router's options: what they name, where it may be, and with which key."""

from __future__ import annotations

from collections.abc import Callable

from cluster.config import RouterOptions
from cluster.process.background import Background
from cluster.world import World
from router.store.names import StoreNames
from router.telemetry.metrics import RouterMetrics
from router.vllm.allowed_hosts import AllowedHosts
from router.vllm.discoveries import discovery_of
from router.vllm.introduction import FrontedModel
from router.vllm.vllm_fleet import VllmFleet


def fleet_of_named(
    options: RouterOptions,
    fronted: FrontedModel | None,
    world: World,
    background: Background,
    *,
    metrics: RouterMetrics,
    on_gone: Callable[[str], None],
) -> VllmFleet | None:
    """None where no vLLM servers are named. `on_gone`: see VllmFleet. Raises ConfigError."""
    named = options.vllm_servers.vllm
    if named is None or fronted is None:
        return None
    from router.vllm.http_wire import wires_with_key_of  # with httpx: 64 ms, of use only here

    names = StoreNames(options.store.store_namespace, fronted.name)
    vllm = options.vllm_servers
    needs_tls = vllm.vllm_key_file is not None and not vllm.vllm_key_in_clear
    allowed = AllowedHosts(vllm.vllm_allow, needs_tls=needs_tls)
    discovery = discovery_of(named, names, world, allowed)
    metrics.watch_discovery(lambda: discovery.is_current)
    return VllmFleet(
        discovery,
        wires_with_key_of(vllm.vllm_key_file),
        fronted,
        world,
        background,
        interval_s=options.beat_interval_s,
        on_late_reads=metrics.late_reads.inc,
        on_gone=on_gone,
    )
