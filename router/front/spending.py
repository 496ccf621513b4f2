"""What a request's key is charged, whatever becomes of the request.

A prompt counts whole, an answer as far as it was made, and a request that was refused not at all.
What an earlier connection had of the answer, and the prompt with it, was charged to that one.
"""

from __future__ import annotations

from cluster.errors import NotReady
from router.front.prepared_generation import PreparedGeneration
from router.tenants.account import Reservation


async def reserved(prepared: PreparedGeneration) -> Reservation | None:
    """Its tokens; a length that the client asked for is reserved as it is. The caller settles.
    Raises RateLimited and BudgetSpent."""
    if prepared.account is None:
        return None
    request, past = prepared.routed, prepared.past
    per_choice = request.sampling.max_tokens
    if request.is_default_length and request.expected_tokens is not None:
        per_choice = request.expected_tokens
    answer_tokens = per_choice * request.num_choices
    if past is not None:
        return await prepared.account.reserve(0, max(0, answer_tokens - past.num_tokens))
    return await prepared.account.reserve(len(request.token_ids), answer_tokens)


def settle(
    reservation: Reservation | None,
    prepared: PreparedGeneration,
    num_made: int,
    error: BaseException | None = None,
) -> None:
    """The request is over, by `error` or well, with so many tokens made for this connection."""
    if reservation is not None:
        is_refused = isinstance(error, NotReady) and not num_made
        is_charged = prepared.past is None and not is_refused
        reservation.settle(len(prepared.routed.token_ids) if is_charged else 0, num_made)
