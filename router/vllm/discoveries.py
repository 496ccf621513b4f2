"""The Discovery that an operator's words name: servers themselves, or where they are found."""

from __future__ import annotations

from cluster.world import World
from router.store.address import read_address
from router.store.names import StoreNames
from router.vllm.allowed_hosts import AllowedHosts
from router.vllm.discovery import Discovery, StaticDiscovery
from router.vllm.redis_discovery import RedisDiscovery
from router.vllm.server_address import vllm_addresses

_PODS = "kubernetes://"
_REDIS = ("redis://", "rediss://")


def discovery_of(named: str, names: StoreNames, world: World, allowed: AllowedHosts) -> Discovery:
    """`names`: under which servers of this fleet write themselves; `allowed`: where these may be.
    Raises ConfigError."""
    if named.startswith(_REDIS):
        from router.store.redis_link import RedisLink  # a tenth of a second, of use only here

        link = RedisLink(read_address(named, option="vllm"))
        return RedisDiscovery(link, names, world, allowed)
    if named.startswith(_PODS):
        from router.vllm.pods.api_server import PodsApi  # with httpx: of use only here
        from router.vllm.pods.discovery import PodDiscovery
        from router.vllm.pods.selection import pod_selection

        selection = pod_selection(named)
        allowed.check_scheme(selection.scheme)
        return PodDiscovery(PodsApi(selection), selection, world, allowed)
    return StaticDiscovery(vllm_addresses(named))
