"""vLLM servers found as pods with certain labels, and followed as they come, get ready and go.

    list -> watch from its version --event, bookmark--> the version moves on
     ^        |--ended by the server, as asked--> watch from the version
     |        |--410 Gone, or refused--> wait; list again
     '--------'--away--> wait: doubled each time, with jitter; the last view holds, said once
what cannot be read of a pod -> that pod is left out, each fault said once, MAX_FAULTS of a pod

A pod is a server while it is ready and not being deleted. One that is not gets nothing new, and
leaves with its last request; of a pod that is ready again the router has forgotten nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from cluster.errors import ConfigError
from cluster.logs import get_logger
from cluster.process.backoff import Backoff
from cluster.terminal_text import plain
from cluster.world import World
from router.vllm.allowed_hosts import AllowedHosts
from router.vllm.pods.api_server import ListAgain, PodsApi, PodsForbidden, PodsUnseen
from router.vllm.pods.pod import Pod, address_of
from router.vllm.pods.selection import PodSelection
from router.vllm.server_address import MAX_SERVERS, VllmAddress

PAUSE_S = 0.5
"""Between two watches, or two lists, of a server that ends them at once."""
MAX_SAID = 256
MAX_FAULTS = 4
"""Said of one pod until it is gone: a fault may have other words with each event."""
_log = get_logger("vllm")


class PodDiscovery:
    """See Discovery."""

    def __init__(
        self, api: PodsApi, selection: PodSelection, world: World, allowed: AllowedHosts
    ) -> None:
        """`api`: used by nobody else. `allowed`: pods elsewhere are left out."""
        self._api = api
        self._selection = selection
        self._world = world
        self._allowed = allowed
        self._pods: dict[str, Pod] = {}
        """By name, as last seen."""
        self._version = ""
        """To watch from; empty: list first."""
        self._fault: str | None = None
        self._is_current = False
        self._backoff = Backoff()
        self._said: set[str] = set()
        """What was left out: MAX_SAID at most."""
        self._faults: dict[str, set[str]] = {}
        """Of pods that were left out, MAX_SAID at most, by name: what was said of each."""

    @property
    def is_current(self) -> bool:
        """See Discovery."""
        return self._is_current

    @property
    def version(self) -> str:
        """From which it would go on; for checks."""
        return self._version

    async def servers(self) -> AsyncGenerator[tuple[VllmAddress, ...], None]:
        """See Discovery."""
        told: tuple[VllmAddress, ...] | None = None
        try:
            while True:
                async with aclosing(self._views()) as views:
                    async for _ in views:
                        now = self._addresses()
                        if now != told:
                            told = now
                            yield now
        finally:
            await self._api.close()

    async def _views(self) -> AsyncGenerator[None, None]:
        """Once around: ends with the watch, or after the wait that a fault has called for."""
        began_s = self._world.clock()
        try:
            async with aclosing(self._seen()) as seen:
                async for _ in seen:
                    yield
        except ListAgain:
            self._version = ""
            delay_s = self._backoff.next_delay_s(healthy_s=self._world.clock() - began_s)
        except PodsUnseen as fault:
            if isinstance(fault, PodsForbidden):
                self._version = ""
            await self._hold(str(fault))
            delay_s = self._backoff.next_delay_s(healthy_s=self._world.clock() - began_s)
        else:
            self._backoff.start_anew()
            delay_s = PAUSE_S
        await self._world.sleep(delay_s * self._world.chance.uniform(0.5, 1.0))

    async def _seen(self) -> AsyncGenerator[None, None]:
        """Each time that something may have changed."""
        if not self._version:
            listed = await self._api.listed()
            self._pods = {pod.metadata.name: pod for pod in listed.pods}
            self._version = listed.version
            self._forget_others({*self._pods, *(unread.name for unread in listed.unread)})
            for unread in listed.unread:
                self._leave_out(unread.name, unread.fault)
            if not listed.pods:
                what = f"{self._selection.labels} in {self._selection.namespace}"
                self._say("no pod has the labels that --vllm names", what)
            yield
        async with aclosing(self._api.watched(self._version)) as news:
            async for each in news:
                self._take_heart()
                self._version = each.version or self._version
                if not each.name:
                    continue
                if each.is_gone:
                    self._faults.pop(each.name, None)
                elif each.fault:
                    self._leave_out(each.name, each.fault)
                if each.pod is None or each.is_gone:
                    self._pods.pop(each.name, None)
                else:
                    self._pods[each.name] = each.pod
                yield

    def _addresses(self) -> tuple[VllmAddress, ...]:
        """Of two at one place the older one's: pods of a node's own network may meet there."""
        found: dict[str, VllmAddress] = {}
        ready = [pod for pod in self._pods.values() if pod.takes_work]
        for pod in sorted(ready, key=lambda pod: (_born(pod), pod.metadata.name)):
            address = self._read(pod)
            if address is None:
                continue
            if len(found) >= MAX_SERVERS:
                what = f"{MAX_SERVERS} at most"
                self._say("more vLLM servers are ready than can be; new ones are left out", what)
                break
            if found.setdefault(address.host_port, address) is not address:
                what = f"{pod.metadata.name} at {address.host_port}"
                self._say("two pods are at one place; the older one stays", what)
        return tuple(sorted(found.values(), key=lambda address: address.host_port))

    def _read(self, pod: Pod) -> VllmAddress | None:
        try:
            address = address_of(pod, self._selection)
            self._allowed.check(address)
        except ConfigError as cause:
            self._leave_out(pod.metadata.name, str(cause))
            return None
        return address

    def _leave_out(self, name: str, why: str) -> None:
        if name not in self._faults and len(self._faults) >= MAX_SAID:
            return
        said = self._faults.setdefault(name, set())
        if len(said) < MAX_FAULTS and why not in said:
            said.add(why)
            _log.warning("a pod is left out", what=plain(f"pod {name}: {why}"))

    def _forget_others(self, there: set[str]) -> None:
        self._faults = {name: said for name, said in self._faults.items() if name in there}

    def _take_heart(self) -> None:
        if self._fault is not None:
            _log.info("pods are seen again", namespace=self._selection.namespace)
        self._fault, self._is_current = None, True

    async def _hold(self, fault: str) -> None:
        """The last view stays; the next try begins with a new connection."""
        await self._api.close()
        self._is_current = False
        if fault != self._fault:
            self._fault = fault
            _log.warning("pods cannot be looked up; the servers known stay", reason=plain(fault))

    def _say(self, event: str, what: str) -> None:
        if len(self._said) < MAX_SAID and what not in self._said:
            self._said.add(what)
            _log.warning(event, what=what)


def _born(pod: Pod) -> str:
    return pod.metadata.creation_timestamp or ""
