"""Requests that a gateway sends by itself: this router chooses the vLLM server, and keeps count.

    admitted -> decided -> picked -> began (the answer's head has come) -> made ... -> ended -.
                              '-- failed, or its client left -------------------------------> closed

They wait in the same line as all others, at the same price, and count at their server until they
are over: whoever comes next finds it as loaded as it is, and its cache as it will be. What fails at
the server is not sent again: it is the gateway's by then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from cluster.errors import NoWorker, WorkerLost
from cluster.generation import Timing, Usage
from cluster.identity import Role, WorkerKey
from cluster.membership.reach import ip_of
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.chosen_workers import ChosenWorkers
from router.dispatch.dispatcher import Dispatcher
from router.dispatch.left_behind import LeftBehind
from router.dispatch.request_clock import RequestClock
from router.dispatch.sending import Sending
from router.dispatch.stream import RoutedRequest
from router.telemetry.decisions import Decision
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
        self, request: RoutedRequest, among: Collection[str] | None = None
    ) -> AsyncIterator[PassedRequest]:
        """The request's server, and its place there until the block ends. `among`: addresses
        (ip:port) that it may go to; None: all.

        Raises QueueFull, Hopeless, DeadlineExceeded, ContextTooLong, and NoWorker where none of
        them takes work.
        """
        async with self._dispatcher.admitted(request) as place:
            fleet = self._with.fleet
            await fleet.wait_for_decode(request.limits.to_first_token)
            decision = self._with.desk.decide(request, self._all_but(among), place.hold)
            server = self._vllm.server_of(decision.route.decode)
            if server is None:
                raise WorkerLost(f"{decision.route.decode.worker_id} left; try again")
            passed = PassedRequest(request, decision, server, place, self._with)
            try:
                yield passed
            finally:
                passed.close()

    def _all_but(self, among: Collection[str] | None) -> frozenset[WorkerKey]:
        """Who is no server that a gateway could send to: it needs one that computes the prompt
        and the answer, at an address."""
        able = {item.key for item in self._with.fleet.with_role(Role.DECODE)}
        able = {key for key in able if self._is_reached(self._vllm.server_of(key), among)}
        if not able:
            where = "" if among is None else f" among the {len(among)} that the gateway names"
            raise NoWorker(f"no vLLM server has joined at an IP address{where}")
        return frozenset(item.key for item in self._with.fleet.members if item.key not in able)

    def _is_reached(self, server: VllmServer | None, among: Collection[str] | None) -> bool:
        if server is None or ip_of(server.address.host) is None:
            return False
        return among is None or server.address.host_port in among


class PassedRequest:
    """One request at its server, as far as the gateway tells. `close` once, whatever came."""

    def __init__(
        self,
        request: RoutedRequest,
        decision: Decision,
        server: VllmServer,
        place: AdmissionLease,
        sending: Sending,
    ) -> None:
        """Raises WorkerLost when the server has gone in that moment."""
        workers = ChosenWorkers.of(decision.view, decision.route, sending.fleet)
        self.server = server
        self._request, self._decision, self._place, self._with = request, decision, place, sending
        self._key, self._standstill = decision.route.decode, workers.standstill
        self._clock = RequestClock(request.limits.arrived_s, clock=request.limits.clock)
        self._num_made = 0
        self._is_alone = server.num_asked == 0
        self._computing_ms = 0.0
        self._has_head = False
        place.hold.makes(lambda: self._num_made)
        place.hold.move(workers.decode.room, decision.cached_at(self._key))
        prefill_ms, turn = decision.route.chosen.cost.prefill_ms, None
        if place.hold.takes_turns:
            turn = workers.computing.prompts.give(prefill_ms)
        place.goes_to(turn)
        computed, cached = decision.expected_work
        place.bill.prompt(computed=computed, cached=cached)
        self._clock.dispatched()
        sending.decisions.record(decision)
        self._assignments = workers.assign(request)
        self._left_behind = LeftBehind(request, workers, sending.index)
        self._left_behind.expect()
        server.num_asked += 1

    @property
    def root(self) -> bytes:
        """Below which its blocks are named: the tenant's and the client's salt, at that server."""
        item = self._with.fleet.find(self._key)
        return self._request.root_at("" if item is None else item.pairing_key)

    @property
    def expected_cached(self) -> int:
        """Tokens of its prompt that the server is believed to have."""
        return self._decision.cached_at(self._key)

    def began(self) -> None:
        """The head of a good answer has come: its prompt is, or is being, computed."""
        if self._has_head:
            return
        self._has_head = True
        self._with.fleet.note_request(self._key, failed=False)
        self._standstill.made(self._request.limits.clock())

    def made(self, num_tokens: int) -> None:
        """A part of the answer has come, with so many tokens more, over all choices."""
        self.server.num_words += 1
        self._standstill.made(self._request.limits.clock())
        if num_tokens and not self._clock.has_token:
            self._computing_ms = self._clock.since_dispatch_ms if self._is_alone else 0.0
        self._count(num_tokens)

    def ended(self, usage: Usage) -> None:
        """The answer is complete, as far as anybody knows. One that came in one piece tells
        nothing of how long its prompt took."""
        self._count(max(0, usage.completion_tokens - self._num_made))
        request, name = self._request, self.server.name
        worker = Timing(prefill_ms=self._computing_ms, decode_worker=name)
        per_choice = usage.completion_tokens // request.num_choices
        timing = self._clock.complete(worker, longest_tokens=per_choice)
        self._left_behind.ended(usage, timing)
        sending = self._with
        sending.metrics.finished(usage, timing)
        sending.metrics.classes.finished(request.priority, usage, timing)
        sending.decisions.finished(request.request_id, usage, timing)
        sending.estimates.finished(
            usage, timing, decode=self._key, prefill=None, num_choices=request.num_choices
        )

    def failed(self, *, is_servers_fault: bool) -> None:
        """It answered with an error, which leaves nothing to count on."""
        self._left_behind.failed()
        if is_servers_fault:
            self._with.fleet.note_request(self._key, failed=True)

    def fell_silent(self) -> None:
        """Its answer did not come, or not to its end, in time: nothing is learnt from it. The
        server's fault where it has made nothing for anybody."""
        self.failed(is_servers_fault=self._stands)

    @property
    def _stands(self) -> bool:
        return self._standstill.has_lasted(self._request.limits.between_tokens_s)

    def _count(self, num_tokens: int) -> None:
        if num_tokens and not self._clock.has_token:
            self._assignments.prefilled()
            self._place.computed()
            self._left_behind.decoded()
        self._clock.tokens(0, num_tokens)
        self._num_made += num_tokens
        self._left_behind.made(num_tokens)
        self._place.bill.produced(num_tokens)

    def close(self) -> None:
        """It has nothing more to do for it."""
        self.server.num_asked -= 1
        self._assignments.release()
        self._left_behind.settle()
