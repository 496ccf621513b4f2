"""How a client wants its chat rendered."""

from __future__ import annotations

from typing import Any

from cluster.errors import InvalidRequest
from cluster.models.text.template_sandbox import GLOBAL_NAMES
from router.api.reading.schema import ChatRendering, ChatRequest
from router.front.generation_request import Rendering
from router.front.served_model import ServedModel

RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
"""What a template gets from us, of the request."""


def rendering_of(
    request: ChatRequest | ChatRendering, model: ServedModel | None = None
) -> Rendering:
    """`model`: whose template may take more. Raises InvalidRequest for wishes that exclude each
    other, naming the field."""
    continues = bool(request.continue_final_message)
    opens = request.add_generation_prompt is not False
    if continues and opens and request.add_generation_prompt is not None:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt exclude each other; send one",
            param="continue_final_message",
        )
    if continues and (not request.messages or request.messages[-1].role != "assistant"):
        raise InvalidRequest(
            "continue_final_message needs a last message of the assistant",
            param="continue_final_message",
        )
    variables = _checked(request.chat_template_kwargs or {})
    if request.reasoning_effort is not None and model is not None:
        variables = {**_effort(request.reasoning_effort, model), **variables}
    return Rendering(
        add_generation_prompt=opens and not continues,
        continue_final=continues,
        add_special=bool(request.add_special_tokens),
        variables=variables,
    )


def _effort(effort: str, model: ServedModel) -> dict[str, Any]:
    """As the template takes it. Raises InvalidRequest where it does not."""
    takes = frozenset() if model.template is None else model.template.takes
    if "reasoning_effort" in takes:
        return {"reasoning_effort": effort}
    if effort == "none" and "enable_thinking" in takes:
        return {"enable_thinking": False}
    if effort == "none" and model.manners.thoughts is None:
        return {}
    raise InvalidRequest(
        f"reasoning_effort is {effort[:50]!r}, and the chat template of {model.name} takes none; "
        "leave it out",
        param="reasoning_effort",
    )


def _checked(variables: dict[str, Any]) -> dict[str, Any]:
    for name in variables:
        if name in RESERVED:
            reason = "which has a field of its own"
        elif name in GLOBAL_NAMES:
            reason = "which is a function of every template; leave it out"
        else:
            continue
        raise InvalidRequest(
            f"chat_template_kwargs has {name!r}, {reason}", param="chat_template_kwargs"
        )
    return variables
