"""Orders between an operator and a supervisor that asks for them."""

from __future__ import annotations

import asyncio

import pytest

from cluster.scaling.scaler import OrderUnanswered
from cluster.scaling.wire import UNANSWERED, plan_from_wire
from protos.membership_pb2 import ScaleAnswer, ScaleOrder
from router.control.orders import ANSWER_TIMEOUT_S, Orders
from tests.virtual_time import VirtualTime, settle


class Desk:
    """Orders, in a time of its own."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.orders = Orders(sleep=self.time.sleep)

    async def place(self) -> asyncio.Task[ScaleAnswer]:
        task = asyncio.create_task(self.orders.give(ScaleOrder(pool="decode", size=2)))
        await settle()
        return task


async def test_an_order_is_handed_out_once_and_its_answer_reaches_who_gave_it() -> None:
    desk = Desk()
    asking = await desk.place()
    (order,) = desk.orders.hand_out()
    assert desk.orders.hand_out() == []
    desk.orders.take_answers([ScaleAnswer(number=order.number, pool="decode", size=2)])
    assert (await asking).size == 2


async def test_a_second_order_is_refused_until_the_first_is_answered() -> None:
    desk = Desk()
    asking = await desk.place()
    assert (await (await desk.place())).reason == "changing"
    (order,) = desk.orders.hand_out()
    desk.orders.take_answers([ScaleAnswer(number=order.number)])
    await asking
    again = await desk.place()
    assert not again.done()
    await desk.time.advance(ANSWER_TIMEOUT_S)
    await again


async def test_an_order_that_nobody_asks_for_ends_and_is_not_obeyed_later() -> None:
    desk = Desk()
    asking = await desk.place()
    await desk.time.advance(ANSWER_TIMEOUT_S)
    answer = await asking
    assert answer.reason == "unsupervised" and "splitserve serve" in answer.message
    assert desk.orders.hand_out() == []


async def test_an_answer_to_an_order_that_was_given_up_is_dropped() -> None:
    desk = Desk()
    late = await desk.place()
    (order,) = desk.orders.hand_out()
    await desk.time.advance(ANSWER_TIMEOUT_S)
    answer = await late
    assert answer.reason == UNANSWERED and "may have begun" in answer.message
    with pytest.raises(OrderUnanswered, match="may have begun"):
        plan_from_wire(answer)
    asking = await desk.place()
    desk.orders.take_answers([ScaleAnswer(number=order.number, size=9)])
    await settle()
    assert not asking.done()
    await desk.time.advance(ANSWER_TIMEOUT_S)
    await asking
