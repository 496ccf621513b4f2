"""The first word to a request: before it is read, when it has come, and when it has ended badly.

at a door: let in -> check_room: a class that is shed, nobody is taken, no room in the line
             |                   for one of its tenant -> QueueFull; nothing is read of it
read, tokenized -> came: the same of what is given up -> in line (router/dispatch/admission.py)
counted: whoever gets no answer, once
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cluster.errors import Hopeless, NotReady, QueueFull
from router.dispatch.both_lines import BothLines
from router.dispatch.chronicle import outcome_of
from router.dispatch.degradation import Degradation
from router.dispatch.sending import Sending
from router.dispatch.stream import Newcomer, RoutedRequest
from router.telemetry.diary import Happening
from router.telemetry.request_arrival import RequestArrival
from router.telemetry.request_course import RequestCourse
from router.tenants.priority import Priority


class Reception:
    """Of one router. From the event loop only."""

    def __init__(self, lines: BothLines, degradation: Degradation, sending: Sending) -> None:
        self._lines = lines
        self._degradation = degradation
        self._metrics = sending.metrics
        self._decisions = sending.decisions
        self._diary = sending.fleet.diary

    def check_room(self, newcomer: Newcomer) -> None:
        """See `TokenSource.check_room`. Who is refused here is counted as who is refused later."""
        tenant, limits = newcomer.tenant, newcomer.limits
        try:
            line = self._lines.line(is_pooled=newcomer.is_pooled)
            self._check(tenant.priority, line.wait_s)
            latest = None if limits.asked_s is None else limits.to_first_token
            line.check_room(tenant.name, tenant.priority, tenant.weight, latest)
        except (QueueFull, Hopeless) as refusal:
            course = RequestCourse(limits.arrived_s, now_s := limits.clock(), ended_s=now_s)
            arrival = RequestArrival(
                newcomer.request_id, tenant.name, tenant.priority, course=course
            )
            self._decisions.came(arrival)
            self._ended(newcomer.request_id, tenant.priority, refusal)
            raise

    def came(self, request: RoutedRequest) -> None:
        """It is known now. Raises QueueFull where its class is not taken."""
        course = RequestCourse(request.limits.arrived_s, request.limits.clock())
        arrival = RequestArrival(
            request.request_id, request.tenant, request.priority, course=course
        )
        if not request.follows:
            self._decisions.came(arrival)
        if request.trace is not None:
            request.trace.came(arrival, request.sampling, len(request.token_ids))
        if not request.follows:
            self._check(request.priority, self._lines.of(request).wait_s)

    def _check(self, priority: Priority, line_s: float) -> None:
        self._degradation.look(line_s)
        self._degradation.check(priority, line_s)

    @contextmanager
    def counted(self, request: RoutedRequest) -> Iterator[None]:
        """Counts how a request ended, unless it ended well; of an adapter, also then."""
        outcome = "ok"
        try:
            yield
        except BaseException as end:
            outcome = outcome_of(end)
            self._ended(request.follows or request.request_id, request.priority, end)
            self.over(request)
            raise
        finally:
            if request.adapter is not None:
                self._metrics.adapters.ended(request.adapter.name, outcome)
            if request.trace is not None:
                request.trace.over(self._decisions.find(request.request_id), request.limits.clock())

    def _ended(self, request_id: str, priority: Priority, end: BaseException) -> None:
        self._metrics.requests.labels(outcome := outcome_of(end)).inc()
        self._decisions.ended(request_id, outcome, str(end))
        if isinstance(end, NotReady):
            self._metrics.classes.refused(priority, end)
            self._diary.note(Happening.REFUSED, priority, outcome)

    def over(self, request: RoutedRequest) -> None:
        """It has its answer, or none; what comes first counts. Of several inputs the first one's
        entry ends with the last of them."""
        arrival = request.arrival_in(self._decisions)
        if arrival is not None and arrival.course.ended_s is None:
            arrival.course.ended_s = request.limits.clock()
        if request.follows and (first := self._decisions.arrival_of(request.follows)) is not None:
            first.course.ended_s = request.limits.clock()
