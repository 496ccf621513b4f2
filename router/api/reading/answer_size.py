"""How many logprobs an answer in one piece may have: all of it is held until its end.

A stream holds nothing, so nothing bounds its logprobs.
"""

from __future__ import annotations

import msgspec

from cluster.errors import InvalidRequest
from cluster.sampling import in_words
from router.api.reading.plan import Plan

MAX_ANSWER_LOGPROBS = 1 << 18
"""About 11 MB of a chat's answer; 12,483 tokens with 20 alternatives each."""


def fitting(plan: Plan) -> Plan:
    """A plan whose answer has no more logprobs than that: a length that nobody asked for is cut.

    Raises InvalidRequest where one was asked for that is too much."""
    wishes = plan.wishes
    sampling = wishes.sampling
    if plan.options.stream or sampling.logprobs is None:
        return plan
    per_token = len(plan.prompts) * sampling.n * (1 + sampling.logprobs)
    max_tokens = max(1, MAX_ANSWER_LOGPROBS // max(1, per_token))
    if wishes.max_tokens is None:
        default = wishes.default_max_tokens
        cut = max_tokens if default is None else min(default, max_tokens)
        shorter = msgspec.structs.replace(wishes, default_max_tokens=cut)
        return msgspec.structs.replace(plan, wishes=shorter)
    if wishes.max_tokens > max_tokens:
        raise InvalidRequest(
            f"{in_words(wishes.max_tokens)} tokens in {in_words(len(plan.prompts) * sampling.n)} "
            f"choices with {sampling.logprobs} alternatives each are "
            f"{in_words(wishes.max_tokens * per_token)} logprobs; "
            f"allowed in one piece: {MAX_ANSWER_LOGPROBS}: stream, or ask for fewer",
            param="logprobs",
        )
    return plan
