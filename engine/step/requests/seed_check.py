"""What is checked of a seed: first tokens that a prefill worker has sampled."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.errors import InternalError
from cluster.generation import GeneratedToken
from engine.step.requests.request import Request


def check_choices(request: Request, tokens: Mapping[int, GeneratedToken]) -> None:
    """Each choice has one, and nobody else. Raises InternalError."""
    if set(tokens) != set(request.choices):
        raise InternalError(
            f"the prefill worker sent first tokens of choices {sorted(tokens)}; "
            f"there are {sorted(request.choices)}"
        )


def check_vocabulary(tokens: Mapping[int, GeneratedToken], vocab_size: int) -> None:
    """They and what came next to them are tokens of this model. Raises InternalError."""
    worst = max(
        token_id
        for token in tokens.values()
        for token_id in (token.token_id, *(other for other, _ in token.top))
    )
    if worst >= vocab_size:
        raise InternalError(
            f"the prefill worker sent token {worst}; the vocabulary has {vocab_size} tokens"
        )
