"""What a request's key is charged, whatever becomes of the request.

A prompt counts whole, an answer as far as it was made, and a request that was refused not at all.
"""

from __future__ import annotations

from cluster.errors import NotReady
from router.dispatch.stream import RoutedRequest
from router.tenants.account import Account, Reservation


async def reserved(account: Account | None, request: RoutedRequest) -> Reservation | None:
    """Its tokens; a length that the client asked for is reserved as it is. The caller settles.
    Raises RateLimited and BudgetSpent."""
    if account is None:
        return None
    per_choice = request.sampling.max_tokens
    if request.is_default_length and request.expected_tokens is not None:
        per_choice = request.expected_tokens
    return await account.reserve(len(request.token_ids), per_choice * request.num_choices)


def settle(
    reservation: Reservation | None,
    request: RoutedRequest,
    num_made: int,
    error: BaseException | None = None,
) -> None:
    """The request is over, by `error` or well, with so many tokens made."""
    if reservation is not None:
        is_refused = isinstance(error, NotReady) and not num_made
        reservation.settle(0 if is_refused else len(request.token_ids), num_made)
