"""Where each prompt that is exported stands in the queue, said when that has changed: a reader
elsewhere tells by it whether its own prompt moves, or only the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cluster.deadline import Clock
from engine.contract.commands import PrefillMode
from engine.contract.messages import QueuePlace
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence
from engine.step.requests.table import RequestTable

INTERVAL_S = 0.25
"""A look adds up every prompt that waits; readers are told about as often."""

InTurn = Callable[[Iterable[tuple[Request, Sequence]]], list[tuple[Request, Sequence]]]


class QueueReport:
    """Knows what was said last."""

    def __init__(self, table: RequestTable, in_turn: InTurn, *, clock: Clock) -> None:
        """`in_turn`: the prompts in the order in which they are computed."""
        self._table = table
        self._in_turn = in_turn
        self._clock = clock
        self._said: dict[str, int] = {}
        self._looked_s = -INTERVAL_S

    def due(self) -> list[QueuePlace]:
        """The places that are news; none before the interval has passed."""
        now_s = self._clock()
        if now_s - self._looked_s < INTERVAL_S:
            return []
        self._looked_s = now_s
        before, self._said = self._said, self._places()
        return [
            QueuePlace(request_id, tokens_ahead)
            for request_id, tokens_ahead in self._said.items()
            if before.get(request_id) != tokens_ahead
        ]

    def _places(self) -> dict[str, int]:
        places: dict[str, int] = {}
        num_tokens = 0
        for request, sequence in self._in_turn(self._table.uncomputed()):
            num_tokens += sequence.num_remaining
            if request.body.mode is PrefillMode.EXPORT:
                places[request.request_id] = num_tokens
        return places
