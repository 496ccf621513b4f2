"""What an operator orders of the fleet's supervisor, until it has answered.

    placed --the next report--> handed out --the report after that--> answered
       '------ANSWER_TIMEOUT_S-----'---------> given up: nobody hears, or nobody says so

One at a time: a second operator is told that the first is not done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count

from cluster.deadline import Sleep
from cluster.process.background import until_one_ends
from cluster.scaling.scaler import RefusalReason, ScaleRefused
from cluster.scaling.wire import UNANSWERED, refusal_to_wire
from protos.membership_pb2 import ScaleAnswer, ScaleOrder

ANSWER_TIMEOUT_S = 5.0
"""A supervisor asks every second and answers at once."""


class Orders:
    """From the event loop only."""

    def __init__(self, *, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._numbers = count(1)
        self._waiting: ScaleOrder | None = None
        """Not handed out."""
        self._number = 0
        """Of the order that is under way; 0: of none."""
        self._answer: ScaleAnswer | None = None
        self._is_answered = asyncio.Event()

    async def give(self, order: ScaleOrder) -> ScaleAnswer:
        """The supervisor's answer, or in its place a refusal, or that there is none."""
        if self._number:
            return _refused(RefusalReason.CHANGING, "another order is not answered yet; try again")
        self._number = order.number = next(self._numbers)
        self._waiting, self._answer = order, None
        self._is_answered.clear()
        try:
            await until_one_ends(self._is_answered.wait(), self._sleep(ANSWER_TIMEOUT_S))
            return self._answer or _unanswered(order, is_handed_out=self._waiting is None)
        finally:
            self._number, self._waiting = 0, None

    def take_answers(self, answers: Iterable[ScaleAnswer]) -> None:
        """Those to nobody who waits are dropped."""
        for answer in answers:
            if answer.number and answer.number == self._number:
                self._answer = answer
                self._is_answered.set()

    def hand_out(self) -> list[ScaleOrder]:
        """For the supervisor, once."""
        order, self._waiting = self._waiting, None
        return [] if order is None else [order]


def _unanswered(order: ScaleOrder, *, is_handed_out: bool) -> ScaleAnswer:
    if is_handed_out:
        message = "the supervisor took the order and has not answered"
        message += "" if order.dry_run else "; it may have begun"
        return ScaleAnswer(reason=UNANSWERED, message=message)
    return _refused(
        RefusalReason.UNSUPERVISED,
        "no supervisor asks this router for orders: its workers were not started by "
        "`splitserve serve`",
    )


def _refused(reason: RefusalReason, message: str) -> ScaleAnswer:
    return refusal_to_wire(ScaleRefused(reason, message))
