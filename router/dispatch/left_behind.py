"""What a request leaves in the caches of its workers: counted on while it runs, settled at its end.

    sent -> expected at the decode worker and at who is to compute the prompt
         -> decoded there, or ended well -> true of whoever surely has the whole prompt
         -> failed, or left before that  -> expected no more

What comes true without events is a guess; whatever was written, by a request that failed as well,
counts towards giving older guesses up.
"""

from __future__ import annotations

from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from router.dispatch.chosen_workers import ChosenWorkers
from router.dispatch.stream import RoutedRequest
from router.fleet.member import FleetMember
from router.index.open_expectations import Expectation
from router.index.prefix_index import PrefixIndex


class LeftBehind:
    """Of one request. `expect` when it is sent, `settle` when it is over, whatever came between."""

    def __init__(self, request: RoutedRequest, workers: ChosenWorkers, index: PrefixIndex) -> None:
        self._request = request
        self._workers = workers
        self._index = index
        self._num_made_tokens = 0
        self._computer: FleetMember | None = None
        self._num_cached_tokens = 0
        """Of the prompt, that the computer had; it knows that better than we did."""
        self._expected: dict[WorkerKey, Expectation] = {}
        self._holders: frozenset[str] = frozenset()

    @property
    def num_made_tokens(self) -> int:
        """Of its answer, at this decode worker."""
        return self._num_made_tokens

    def expect(self) -> None:
        """From now on requests that follow find their prefix."""
        self._expect_at(self._workers.decode)
        self._expect_at(self._workers.computing)

    def made(self, num_tokens: int) -> None:
        """Tokens of an answer have come."""
        self._num_made_tokens += num_tokens

    def decoded(self) -> None:
        """The decode worker has made a token of its own: it has all of the prompt's KV, whenever
        the client leaves. Events say it themselves."""
        decode = self._workers.decode
        if decode.guesses is not None:
            self._holders |= {decode.key.worker_id}

    def ended(self, usage: Usage, timing: Timing) -> None:
        """The request ended well. Whoever computed the prompt has it, and a decode worker that
        went beyond the first token; one that ended with it may have stopped reading."""
        decode = self._workers.decode.key.worker_id
        computer = timing.prefill_worker or decode
        has_decoded = usage.completion_tokens > self._request.num_choices
        self._holders = frozenset({computer, decode} if has_decoded else {computer})
        named = (item for item in self._workers.all if item.key.worker_id == computer)
        self._computer, self._num_cached_tokens = next(named, None), usage.cached_tokens
        if self._computer is not None and self._computer.guesses is not None:
            self._expect_at(self._computer)  # it may be another than the first one proposed

    def failed(self) -> None:
        """The request ended with an error: a step that failed leaves nothing to count on."""
        self._holders = frozenset()

    def settle(self) -> None:
        """Once, at the end. The newest guess outlives the older ones that its blocks displace."""
        for item in self._workers.all:
            if item.key in self._expected:
                item.note_written(self._num_written_tokens(item))
        for key, expectation in self._expected.items():
            expectation.settle(came_true=key.worker_id in self._holders)
        self._expected = {}

    def _expect_at(self, item: FleetMember) -> None:
        if item.key not in self._expected:
            namer = self._request.namer_at(item.key, self._workers.decode.pairing_key)
            root = self._request.root_at(namer)
            self._expected[item.key] = self._index.expect([item.key], root, self._request.packed)

    def _num_written_tokens(self, item: FleetMember) -> int:
        found = self._workers.found.get(item.key, 0)
        if item is self._computer:
            found = min(found, self._num_cached_tokens)
        num_made = self._num_made_tokens if item is self._workers.decode else 0
        return self._request.num_known_tokens - found + num_made
