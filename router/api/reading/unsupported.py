"""Refuses, by name, what OpenAI's or vLLM's API has and this server does not: it would change the
answer. What changes no answer is only declared (`schema.py`) and has no effect."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from cluster.errors import InvalidRequest
from router.api.reading.schema import ChatMessage, ChatRequest, CompletionRequest, SamplingFields

_Fields = dict[str, tuple[Any, ...]]
"""By a field's name: its values that mean "not used"; None always does."""
_EVERYWHERE: _Fields = {
    "functions": ([],),
    "function_call": ("none",),
    "detokenize": (True,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "allowed_token_ids": (),
    "bad_words": ([],),
    "logits_processors": ([],),
    "logprob_token_ids": ([],),
    "kv_transfer_params": ({},),
    "vllm_xargs": ({},),
    "repetition_detection": (),
}
_INSTEAD = {
    "guided_json": 'structured_outputs: {"json": ...}, or response_format',
    "guided_regex": 'structured_outputs: {"regex": ...}',
    "guided_choice": 'structured_outputs: {"choice": [...]}',
    "guided_grammar": 'structured_outputs: {"grammar": ...}',
    "guided_decoding_backend": "structured_outputs alone; there is one backend",
    "guided_whitespace_pattern": 'structured_outputs: {"whitespace_pattern": ...}',
}
"""Old names of vLLM's, and what to write."""
_EVERYWHERE |= dict.fromkeys(_INSTEAD, ())
_CHAT: _Fields = {
    "echo": (False,),
    "documents": ([],),
    "chat_template": (),
    "thinking_token_budget": (),
    "modalities": (["text"],),
    "audio": (),
    "verbosity": (),
    "web_search_options": (),
}
_COMPLETION: _Fields = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "suffix": ("",),
    "prompt_embeds": (),
}
_MESSAGE: _Fields = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "refusal": ("",),
}


class _Unsupported:
    """The fields of one kind of record that it must not use."""

    def __init__(self, fields: _Fields) -> None:
        self._fields = fields
        self._values_of = attrgetter(*fields)  # all at once: one by one took 6 us of a request
        self._unused = (None,) * len(fields)

    def refuse(self, owner: SamplingFields | ChatMessage, prefix: str = "") -> None:
        """Raises InvalidRequest for the first field that is used."""
        values = self._values_of(owner)
        if values == self._unused:
            return
        for (name, harmless), value in zip(self._fields.items(), values, strict=True):
            if value is not None and value not in harmless:
                instead = _INSTEAD.get(name)
                remedy = "leave it out" if instead is None else f"write {instead}"
                raise InvalidRequest(
                    f"{prefix}{name} is not supported by this server; {remedy}",
                    param=f"{prefix}{name}",
                )


_OF_CHATS = _Unsupported({**_EVERYWHERE, **_CHAT})
_OF_COMPLETIONS = _Unsupported({**_EVERYWHERE, **_COMPLETION})
_OF_MESSAGES = _Unsupported(_MESSAGE)


def check_chat(request: ChatRequest) -> None:
    """Raises InvalidRequest for the first parameter that cannot be honoured."""
    _OF_CHATS.refuse(request)
    for index, message in enumerate(request.messages):
        _OF_MESSAGES.refuse(message, prefix=f"messages[{index}].")


def check_completion(request: CompletionRequest) -> None:
    """Raises InvalidRequest for the first parameter that cannot be honoured."""
    _OF_COMPLETIONS.refuse(request)
    if request.echo and request.truncate_prompt_tokens is not None:
        raise InvalidRequest(
            "echo tells the whole prompt; leave out one of echo and truncate_prompt_tokens",
            param="truncate_prompt_tokens",
        )
