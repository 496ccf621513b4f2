"""How long answers may get that are told only at their end: what comes of them waits until then.

A length that nobody asked for is cut, one that was asked for is refused where it is too much.
"""

from __future__ import annotations

import msgspec

from cluster.errors import InvalidRequest
from cluster.sampling import SamplingParams, in_words
from router.front.generation_request import Wishes

MAX_SEARCH_LOGPROBS = 1 << 14
"""Of a beam search: its answers come all at once, and half of what may lie unread of one stream
(router/fleet/unread.py) holds so many tokens and alternatives."""
MAX_HELD_LOGPROBS = 1 << 16
"""Of all that are sampled for the best of them: some 13 MB."""


def fitting(wishes: Wishes, sampling: SamplingParams) -> SamplingParams:
    """Raises InvalidRequest for what is too long, and for stop strings beside a search."""
    if sampling.beams is None and wishes.num_best is None:
        return sampling
    name, limit = "best_of", MAX_HELD_LOGPROBS
    if sampling.beams is not None:
        name, limit = "use_beam_search", MAX_SEARCH_LOGPROBS
        if wishes.stop:
            raise InvalidRequest(
                "stop does not go with use_beam_search: beams are tokens, whose text nobody reads "
                "before the end; leave it out, or send stop_token_ids",
                param="stop",
            )
    per_token = sampling.n * (1 + (sampling.logprobs or 0))
    most = limit // max(1, per_token)
    if sampling.max_tokens <= most:
        return sampling
    if wishes.max_tokens is None:
        return msgspec.structs.replace(sampling, max_tokens=max(1, most))
    raise InvalidRequest(
        f"{in_words(sampling.max_tokens)} tokens of {sampling.n} answers with "
        f"{sampling.logprobs or 0} alternatives each are more than {name} allows, which is "
        f"{most} tokens of so many; ask for fewer",
        param="max_tokens",
    )
