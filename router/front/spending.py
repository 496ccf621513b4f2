"""What a request's key is charged, whatever becomes of the request.

A prompt counts whole, an answer as far as it was made, and a request that was refused not at all.
What an earlier connection had of the answer, and the prompt with it, was charged to that one; who
goes on with one answer again and again is charged what is computed anew for it.
"""

from __future__ import annotations

from cluster.errors import NotReady
from router.front.prepared_generation import PreparedGeneration
from router.tenants.account import Reservation

FREE_RESUMES = 8
"""Of one answer. A worker that goes on with one may have to compute its prompt anew, and what was
told of it: a connection may break some times, and not for ever at others' cost."""


async def reserved(prepared: PreparedGeneration) -> Reservation | None:
    """Its tokens; a length that the client asked for is reserved as it is. The caller settles.
    Raises RateLimited and BudgetSpent."""
    if prepared.account is None:
        return None
    return await prepared.account.reserve(_prompt_tokens(prepared), answer_tokens(prepared))


def answer_tokens(prepared: PreparedGeneration) -> int:
    """That are reserved, for all choices: as many as the client asked for, or as usual."""
    request, past = prepared.routed, prepared.past
    per_choice = request.sampling.max_tokens
    if request.is_default_length and request.expected_tokens is not None:
        per_choice = request.expected_tokens
    num_tokens = per_choice * request.num_sequences
    if past is None:
        return num_tokens
    return 0 if past.end is not None else max(0, num_tokens - past.num_tokens)


def settle(
    reservation: Reservation | None,
    prepared: PreparedGeneration,
    num_made: int,
    error: BaseException | None = None,
    *,
    num_searched: int = 0,
) -> None:
    """The request is over, by `error` or well, with so many tokens made for this connection.
    `num_searched`: those that the beams of a search have got, told or not."""
    if reservation is not None:
        num_made = max(prepared.routed.beam_tokens_of(num_made), num_searched)
        is_refused = isinstance(error, NotReady) and not num_made
        reservation.settle(0 if is_refused else _prompt_tokens(prepared), num_made)


def _prompt_tokens(prepared: PreparedGeneration) -> int:
    """That are computed for this connection, and charged."""
    num_tokens, past = len(prepared.routed.token_ids), prepared.past
    if past is None:
        return num_tokens
    if prepared.num_resumes <= FREE_RESUMES or past.end is not None:
        return 0
    return num_tokens + past.num_tokens
