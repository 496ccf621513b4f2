"""Refuses, by name, what OpenAI's or vLLM's API has and this server does not: it would change the
answer. What changes no answer is only declared (`schema.py`) and has no effect."""

from __future__ import annotations

from typing import Any

from cluster.errors import InvalidRequest
from router.api.reading.schema import ChatMessage, ChatRequest, CompletionRequest, SamplingFields

_EVERYWHERE: dict[str, tuple[Any, ...]] = {
    # field -> values that mean "not used"
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "use_beam_search": (False,),
    "detokenize": (True,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "allowed_token_ids": (),
    "bad_words": ([],),
    "logits_processors": ([],),
    "logprob_token_ids": ([],),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "kv_transfer_params": ({},),
    "vllm_xargs": ({},),
    "repetition_detection": (),
}
_CHAT: dict[str, tuple[Any, ...]] = {
    "echo": (False,),
    "documents": ([],),
    "chat_template": (),
    "thinking_token_budget": (),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": (),
    "web_search_options": (),
}
_COMPLETION: dict[str, tuple[Any, ...]] = {"suffix": ("",), "prompt_embeds": ()}
_MESSAGE: dict[str, tuple[Any, ...]] = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "tool_calls": ([],),
    "tool_call_id": (),
    "refusal": ("",),
}


def check_chat(request: ChatRequest) -> None:
    """Raises InvalidRequest for the first parameter that cannot be honoured."""
    _refuse(request, {**_EVERYWHERE, **_CHAT})
    for index, message in enumerate(request.messages):
        _refuse(message, _MESSAGE, prefix=f"messages[{index}].")


def check_completion(request: CompletionRequest) -> None:
    """Raises InvalidRequest for the first parameter that cannot be honoured."""
    _refuse(request, {**_EVERYWHERE, **_COMPLETION})
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise InvalidRequest(
            f"best_of is {request.best_of} and n is {request.n or 1}; they must be equal",
            param="best_of",
        )
    if request.echo and request.truncate_prompt_tokens is not None:
        raise InvalidRequest(
            "echo tells the whole prompt; leave out one of echo and truncate_prompt_tokens",
            param="truncate_prompt_tokens",
        )


def _refuse(
    owner: SamplingFields | ChatMessage, fields: dict[str, tuple[Any, ...]], prefix: str = ""
) -> None:
    for name, harmless in fields.items():
        value = getattr(owner, name)
        if value is not None and value not in harmless:
            raise InvalidRequest(
                f"{prefix}{name} is not supported by this server; leave it out",
                param=f"{prefix}{name}",
            )
