"""Requests that a gateway sends by itself: this router chooses the vLLM server, and keeps count.

    admitted -> decided -> passed: at its server, see PassedRequest -> over

They wait in the same line as all others, at the same price, and count at their server until they
are over: whoever comes next finds it as loaded as it is, and its cache as it will be. What fails at
the server is not sent again: it is the gateway's by then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from msgspec.structs import replace

from cluster.errors import NoWorker, WorkerLost
from cluster.identity import Role, WorkerKey
from cluster.membership.reach import ip_of
from router.dispatch.dispatcher import Dispatcher
from router.dispatch.passed_request import PassedRequest
from router.dispatch.sending import Sending
from router.dispatch.shown import Shown
from router.dispatch.stream import RoutedRequest
from router.vllm.server import VllmServer
from router.vllm.vllm_fleet import VllmFleet


class Passing:
    """Of one router. All calls from the event loop."""

    def __init__(self, dispatcher: Dispatcher, sending: Sending, vllm: VllmFleet) -> None:
        self._dispatcher = dispatcher
        self._with = sending
        self._vllm = vllm

    @asynccontextmanager
    async def passed(
        self,
        request: RoutedRequest,
        among: Collection[str] | None = None,
        *,
        shown: Shown,
    ) -> AsyncIterator[PassedRequest]:
        """The request's server, and its place there until the block ends. `among`: addresses
        (ip:port) that it may go to; None: all. `shown`: what the gateway lets us see of its answer.

        Raises QueueFull, Hopeless, DeadlineExceeded, ContextTooLong, and NoWorker where none of
        them takes work.
        """
        async with self._dispatcher.admitted(request) as (taken, request, place):
            fleet = self._with.fleet
            await fleet.wait_for_decode(request.limits.to_first_token)
            able = self._able(among)
            if apart := self._apart_in(able):
                request = replace(request, apart_at=apart)
            decision = self._with.desk.decide(request, self._all_but(able), place.part)
            server = self._vllm.server_of(decision.route.decode)
            if server is None:
                raise WorkerLost(f"{decision.route.decode.worker_id} left; try again")
            passed = PassedRequest(request, decision, server, place, self._with, shown=shown)
            taken.under_way = passed
            try:
                yield passed
            finally:
                passed.close()

    def _able(self, among: Collection[str] | None) -> set[WorkerKey]:
        """To whom a gateway could send: it needs one that computes the prompt and the answer, at
        an address. Raises NoWorker."""
        able = {item.key for item in self._with.fleet.with_role(Role.DECODE)}
        able = {key for key in able if self._is_reached(self._vllm.server_of(key), among)}
        if not able:
            where = "" if among is None else f" among the {len(among)} that the gateway names"
            raise NoWorker(f"no vLLM server has joined at an IP address{where}")
        return able

    def _all_but(self, able: set[WorkerKey]) -> frozenset[WorkerKey]:
        return frozenset(item.key for item in self._with.fleet.members if item.key not in able)

    def _apart_in(self, able: set[WorkerKey]) -> frozenset[WorkerKey]:
        """Those that find for a gateway's requests nothing of what others have left there."""
        servers = ((key, self._vllm.server_of(key)) for key in able)
        return frozenset(key for key, server in servers if server and server.caches_apart)

    def _is_reached(self, server: VllmServer | None, among: Collection[str] | None) -> bool:
        if server is None or ip_of(server.address.host) is None:
            return False
        return among is None or server.address.host_port in among
