"""What /v1/messages says of thoughts, as a chat's template takes it."""

from __future__ import annotations

from typing import Any

from cluster.errors import InvalidRequest
from router.api.reading.messages_schema import ThinkingWish
from router.front.served_model import ServedModel


def switch_of(wish: ThinkingWish, model: ServedModel) -> dict[str, Any] | None:
    """Variables for the template; None: none. Raises InvalidRequest for what cannot be kept to."""
    if wish.type not in ("enabled", "adaptive", "disabled"):
        raise InvalidRequest(
            f"thinking.type is {wish.type[:50]!r}; allowed: enabled, adaptive, disabled",
            param="thinking.type",
        )
    if wish.budget_tokens is not None and wish.budget_tokens < 1:
        raise InvalidRequest(
            f"thinking.budget_tokens is {wish.budget_tokens}; allowed: 1 and more",
            param="thinking.budget_tokens",
        )
    takes_switch = model.template is not None and "enable_thinking" in model.template.takes
    if takes_switch and wish.type != "adaptive":
        return {"enable_thinking": wish.type == "enabled"}
    if wish.type == "disabled" and model.manners.thoughts is not None:
        raise InvalidRequest(
            f"thinking is disabled, and the chat template of {model.name} has no switch for it; "
            "leave it out",
            param="thinking",
        )
    return None
