"""From a prompt to token ids: every limit before the work it limits."""

from __future__ import annotations

from typing import Any

from cluster.errors import ContextTooLong, InvalidRequest
from router.front.generation_request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from router.front.served_model import ServedModel


def encode_prompt(model: ServedModel, prompt: Prompt, *, max_context_tokens: int) -> list[int]:
    """Raises InvalidRequest (empty, unknown ids, refused by the template) and ContextTooLong."""
    if isinstance(prompt, TokenPrompt):
        return checked_ids(model, prompt.token_ids, max_context_tokens=max_context_tokens)
    check_length(model, prompt, max_context_tokens=max_context_tokens)
    if isinstance(prompt, TextPrompt) and prompt.pair is not None:
        token_ids = model.tokenizer.encode_pair(prompt.text, prompt.pair)
    elif isinstance(prompt, TextPrompt):
        token_ids = model.tokenizer.encode(prompt.text, add_special=prompt.add_special)
    else:
        token_ids = model.tokenizer.encode(
            rendered(model, prompt), add_special=prompt.rendering.add_special
        )
    kept = token_ids if prompt.keep_last is None else token_ids[-prompt.keep_last :]
    return checked_ids(model, kept, max_context_tokens=max_context_tokens)


def check_length(
    model: ServedModel, prompt: TextPrompt | ChatPrompt, *, max_context_tokens: int
) -> None:
    """Refuses what cannot fit by its length alone: no token has more characters than bytes."""
    num_chars = num_chars_of(prompt)
    if num_chars > max_context_tokens * model.max_token_bytes:
        raise ContextTooLong(
            f"the prompt has {num_chars} characters, which is more than "
            f"{max_context_tokens} tokens can hold; shorten it",
            param="prompt",
        )


def num_chars_of(prompt: TextPrompt | ChatPrompt) -> int:
    """Raises InvalidRequest for an empty text."""
    if isinstance(prompt, TextPrompt):
        if not prompt.text:
            raise InvalidRequest("prompt is empty", param="prompt")
        return len(prompt.text) + len(prompt.pair or "")
    num_chars = sum(len(content) for _role, content in prompt.messages)
    return num_chars if prompt.talk is None else num_chars + prompt.talk.num_chars


def checked_ids(model: ServedModel, token_ids: list[int], *, max_context_tokens: int) -> list[int]:
    """The same ids. Their number first: nothing is done with more than fit."""
    if not token_ids:
        raise InvalidRequest("prompt is empty; it needs at least one token", param="prompt")
    check_num_tokens(len(token_ids), max_context_tokens)
    low, high = min(token_ids), max(token_ids)
    if low < 0 or high >= model.vocab_size:
        wrong = low if low < 0 else high
        raise InvalidRequest(
            f"prompt has token id {wrong}; allowed: 0 to {model.vocab_size - 1}", param="prompt"
        )
    return token_ids


def check_num_tokens(num_tokens: int, max_context_tokens: int) -> None:
    """Raises ContextTooLong where no token of an answer would have room."""
    if num_tokens >= max_context_tokens:
        raise ContextTooLong(
            f"the prompt has {num_tokens} tokens; this model's context is {max_context_tokens} "
            "tokens, prompt and completion together: shorten the prompt",
            param="prompt",
        )


def rendered(model: ServedModel, prompt: ChatPrompt) -> str:
    """The chat as its template writes it. Raises InvalidRequest."""
    if model.template is None:
        raise InvalidRequest(
            f"{model.name} has no chat template; use /v1/completions", param="messages"
        )
    messages: list[dict[str, Any]]
    messages = [{"role": role, "content": content} for role, content in prompt.messages]
    rendering, talk = prompt.rendering, prompt.talk
    for index, extra in (talk.extras if talk is not None else {}).items():
        messages[index].update(extra)
    text = model.template.render(
        messages,
        add_generation_prompt=rendering.add_generation_prompt,
        tools=talk.tools or None if talk is not None else None,
        variables=rendering.variables,
    )
    return _left_open(text, prompt.messages[-1][1]) if rendering.continue_final else text


def _left_open(text: str, final: str) -> str:
    """Cut after the last message's content, as transformers does it: what closes it is left out."""
    stripped = final.strip()
    start = text.rfind(stripped)
    if not stripped or start < 0:
        raise InvalidRequest(
            "continue_final_message: the model's chat template does not write the last message as "
            "it is",
            param="continue_final_message",
        )
    whole = final.lstrip()
    keeps_spaces = text.startswith(whole, start)
    return text[: start + len(whole if keeps_spaces else stripped)]
