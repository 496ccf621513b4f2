"""Orders, plans and pools as messages between an operator, a router and a supervisor."""

from __future__ import annotations

from cluster.scaling.scaler import (
    OrderUnanswered,
    PoolState,
    RefusalReason,
    ScaleOrder,
    ScalePlan,
    ScaleRefused,
)
from protos import membership_pb2

MAX_SIZE = 1024
"""Of a pool that a supervisor keeps."""
UNANSWERED = "unanswered"
"""In place of a reason: the order was handed to a supervisor, who has not answered. Whoever does
not know the word takes it for a refusal, with its message."""


def pool_to_wire(state: PoolState) -> membership_pb2.PoolState:
    """See PoolState."""
    return membership_pb2.PoolState(
        name=state.name,
        wanted=state.num_wanted,
        present=state.num_present,
        ready=state.num_ready,
        generation=state.generation,
        problem=state.problem,
    )


def pool_from_wire(message: membership_pb2.PoolState) -> PoolState:
    """See PoolState."""
    return PoolState(
        name=message.name,
        num_wanted=message.wanted,
        num_present=message.present,
        num_ready=message.ready,
        generation=message.generation,
        problem=message.problem,
    )


def order_to_wire(order: ScaleOrder) -> membership_pb2.ScaleOrder:
    """Its number is the router's to give. Raises ScaleRefused for a size that is none."""
    if not 0 <= order.size <= MAX_SIZE:
        reason = RefusalReason.BELOW_ONE if order.size < 0 else RefusalReason.GPUS
        raise ScaleRefused(reason, f"{order.pool}={order.size}: a size is 1 to {MAX_SIZE}")
    return membership_pb2.ScaleOrder(
        pool=order.pool,
        size=order.size,
        leaving=order.leaving,
        handed_on=order.is_handed_on,
        dry_run=order.is_dry_run,
        by=order.by,
    )


def order_from_wire(message: membership_pb2.ScaleOrder) -> ScaleOrder:
    """See ScaleOrder."""
    return ScaleOrder(
        pool=message.pool,
        size=message.size,
        leaving=tuple(message.leaving),
        is_handed_on=message.handed_on,
        is_dry_run=message.dry_run,
        by=message.by,
    )


def plan_to_wire(plan: ScalePlan) -> membership_pb2.ScaleAnswer:
    """The answer to an order that is obeyed."""
    return membership_pb2.ScaleAnswer(
        pool=plan.pool,
        size_before=plan.size_before,
        size=plan.size,
        starting=plan.starting,
        leaving=plan.leaving,
        num_gpus=plan.num_gpus,
    )


def refusal_to_wire(refusal: ScaleRefused) -> membership_pb2.ScaleAnswer:
    """The answer to one that is not."""
    return membership_pb2.ScaleAnswer(reason=refusal.reason.value, message=refusal.message)


def plan_from_wire(answer: membership_pb2.ScaleAnswer) -> ScalePlan:
    """Raises the refusal that it may be, and OrderUnanswered."""
    if answer.reason == UNANSWERED:
        raise OrderUnanswered(answer.message)
    if answer.reason:
        raise ScaleRefused(_reason_of(answer.reason), answer.message)
    return ScalePlan(
        pool=answer.pool,
        size_before=answer.size_before,
        size=answer.size,
        starting=tuple(answer.starting),
        leaving=tuple(answer.leaving),
        num_gpus=answer.num_gpus,
    )


def _reason_of(word: str) -> RefusalReason:
    """A newer supervisor may have reasons that are not known here; its message says them."""
    known = word in [reason.value for reason in RefusalReason]
    return RefusalReason(word) if known else RefusalReason.OPTIONS
