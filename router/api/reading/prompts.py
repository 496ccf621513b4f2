"""The four forms of a completion's `prompt`."""

from __future__ import annotations

from typing import TypeVar

from cluster.errors import ContextTooLong, InvalidRequest
from router.front.generation_request import TextPrompt, TokenPrompt

MAX_PROMPTS = 32
T = TypeVar("T")


def to_prompts(
    prompt: str | list[str | int | list[int]],
    *,
    max_context_tokens: int,
    add_special: bool = True,
    keep_last: int | None = None,
    name: str = "prompt",
    max_prompts: int = MAX_PROMPTS,
) -> list[TextPrompt | TokenPrompt]:
    """A string, strings, token ids, or lists of token ids; of each only `keep_last` tokens where
    that is said. `name`: of the field. Raises InvalidRequest."""
    if isinstance(prompt, str):
        return [TextPrompt(prompt, add_special, keep_last)]
    if not prompt:
        raise InvalidRequest(f"{name} is empty", param=name)
    if isinstance(prompt[0], int):
        return [_tokens(_last(prompt, keep_last), max_context_tokens, name)]
    if len(prompt) > max_prompts:
        raise InvalidRequest(
            f"{name} has {len(prompt)} prompts; allowed: {max_prompts}", param=name
        )
    if all(isinstance(item, str) for item in prompt):
        return [TextPrompt(str(item), add_special, keep_last) for item in prompt]
    if all(isinstance(item, list) for item in prompt):
        lists = [item for item in prompt if isinstance(item, list)]
        return [_tokens(_last(item, keep_last), max_context_tokens, name) for item in lists]
    raise _mixed(name)


def kept_tokens(
    asked: int | None, *, max_tokens: int | None, max_context_tokens: int
) -> int | None:
    """`truncate_prompt_tokens` as a number of tokens: -1 is all that the answer's `max_tokens`
    leave room for. Raises InvalidRequest."""
    if asked == -1:
        return max(1, max_context_tokens - max(1, max_tokens or 1))
    if asked is not None and not 1 <= asked <= max_context_tokens:
        raise InvalidRequest(
            f"truncate_prompt_tokens is {asked}; allowed: -1, and 1 to {max_context_tokens}",
            param="truncate_prompt_tokens",
        )
    return asked


def _last(items: list[T], count: int | None) -> list[T]:
    return items if count is None else items[-count:]


def _tokens(
    items: list[str | int | list[int]] | list[int], max_context_tokens: int, name: str
) -> TokenPrompt:
    """The length first: nothing is done with a list that cannot fit."""
    if len(items) > max_context_tokens:
        raise ContextTooLong(
            f"the prompt has {len(items)} tokens; this model's context is "
            f"{max_context_tokens} tokens, prompt and completion together: shorten the prompt",
            param=name,
        )
    token_ids = [item for item in items if isinstance(item, int)]
    if len(token_ids) != len(items):
        raise _mixed(name)
    return TokenPrompt(token_ids)


def _mixed(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name} mixes strings, numbers and lists; send one kind only", param=name
    )
