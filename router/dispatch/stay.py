"""One request in its router's books of the workers it is at, whoever sent it there.

begin: counted at them, expected in their caches, in the ledger
  -> computed, decoded -> ended | failed -> release: they do nothing more -> close: settled
"""

from __future__ import annotations

from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from router.dispatch.chosen_workers import Assignments, ChosenWorkers
from router.dispatch.left_behind import LeftBehind
from router.dispatch.stream import RoutedRequest
from router.fleet.fleet import Fleet
from router.index.prefix_index import PrefixIndex
from router.pricing.route import Route
from router.telemetry.request_course import Leg
from router.telemetry.work_ledger import WorkUnderWay


class Stay:
    """From the decision on. `begin` once it is sent; `close` at the end, whatever came."""

    def __init__(
        self,
        request: RoutedRequest,
        workers: ChosenWorkers,
        route: Route,
        fleet: Fleet,
        index: PrefixIndex,
    ) -> None:
        self.leg = Leg(route.decode, next(iter(route.prefill), None), request.limits.clock())
        """When it was where, as far as these workers are concerned."""
        if request.trace is not None:
            self.leg.span_id = request.trace.new_leg()
        self.left_behind = LeftBehind(request, workers, index)
        """`made` is told of every token: by whoever has them."""
        self.num_begun_choices = 0
        """That have a token: the first of each comes with its prompt."""
        self._ledger, self._tenant = fleet.ledger, request.tenant
        self._num_known_tokens = request.num_known_tokens
        self._clock = request.limits.clock
        self._assignments: Assignments | None = None
        self._work: WorkUnderWay | None = None

    def begin(self, request: RoutedRequest, workers: ChosenWorkers) -> None:
        """As at construction. What fails leaves nothing."""
        self._work = self._ledger.begin(self._tenant, self.leg, self._progress)
        try:
            self._assignments = workers.assign(request)
            self.left_behind.expect()
        except BaseException:
            self.close()  # nobody else can
            raise

    def prefilled(self, left_tokens: int = 0) -> None:
        """See Assignments."""
        if self._assignments is not None:
            self._assignments.prefilled(left_tokens)

    def decoded(self) -> None:
        """The decode worker has made a token itself."""
        if self._assignments is not None:
            self._assignments.decoded()
        self.left_behind.decoded()

    def computed(self, by: WorkerKey, cached_tokens: int) -> None:
        """Its prompt is, but for what was cached; the first word counts."""
        if self._work is not None:
            self._work.computed(by, max(0, self._num_known_tokens - cached_tokens))

    def ended(self, usage: Usage, timing: Timing, computed_by: WorkerKey) -> None:
        """Well."""
        self.left_behind.ended(usage, timing)
        self.computed(computed_by, usage.cached_tokens)

    def failed(self) -> None:
        """See LeftBehind."""
        self.left_behind.failed()

    def over(self, end: str = "") -> None:
        """The first end counts: an error's code; empty: well."""
        self.leg.over(self._clock(), end)

    def release(self) -> None:
        """Idempotent."""
        if self._assignments is not None:
            self._assignments.release()

    def close(self) -> None:
        """Idempotent. One that has not ended is cancelled."""
        self.over("cancelled")
        self.release()
        self.left_behind.settle()
        if self._work is not None:
            self._work.over()

    def _progress(self) -> tuple[int, int]:
        """Tokens that it holds there, and those of them that steps have decoded."""
        num_made = self.left_behind.num_made_tokens
        held = self._num_known_tokens + num_made
        return held, max(0, num_made - self.num_begun_choices)
