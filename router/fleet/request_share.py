"""What requests ask of a worker: as one router has given them, and as all the others together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
"""As others may say it."""


class RequestShare(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One request at one worker."""

    num_tokens: _Count
    """Of KV that it may need there: prompt and longest answer, or the prompt alone."""
    prefill_tokens: _Count
    """Of its prompt, that are still to be computed there."""
    num_seqs: _Count = 1
    """That decode there, or will; 0 at a prefill worker."""
    coming_tokens: _Count = 0
    """Of its prompt, whose KV is not in the decode worker's pool yet."""


class Seats(msgspec.Struct, frozen=True):
    """What a request takes at a decode worker beside its turn to be computed."""

    num_seqs: int
    coming_tokens: int
    """See RequestShare."""


NO_SEATS = Seats(0, 0)
"""At a prefill worker."""


@dataclass(frozen=True, slots=True)
class GivenElsewhere:
    """To one worker by the other routers, as far as this one has heard."""

    num_requests: int = 0
    num_tokens: int = 0
    prefill_tokens: int = 0
    num_prompts: int = 0
    """Whose tokens these are."""
    num_seqs: int = 0
    coming_tokens: int = 0
    """To its pool."""

    @classmethod
    def sum_of(cls, requests: Iterable[RequestShare]) -> GivenElsewhere:
        """Each of them counts once."""
        num_requests = num_tokens = prefill_tokens = num_prompts = num_seqs = coming_tokens = 0
        for request in requests:
            num_requests += 1
            num_tokens += request.num_tokens
            prefill_tokens += request.prefill_tokens
            num_prompts += request.prefill_tokens > 0
            num_seqs += request.num_seqs
            coming_tokens += request.coming_tokens
        return cls(num_requests, num_tokens, prefill_tokens, num_prompts, num_seqs, coming_tokens)


NOTHING_ELSEWHERE = GivenElsewhere()
"""Of a worker to which no other router has given anything, and of a router that is alone."""
