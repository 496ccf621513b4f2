"""The four forms of a completion's `prompt`."""

from __future__ import annotations

from cluster.errors import ContextTooLong, InvalidRequest
from router.front.generation_request import TextPrompt, TokenPrompt

MAX_PROMPTS = 32


def to_prompts(
    prompt: str | list[str | int | list[int]], *, max_tokens: int, add_special: bool = True
) -> list[TextPrompt | TokenPrompt]:
    """A string, strings, token ids, or lists of token ids. Raises InvalidRequest."""
    if isinstance(prompt, str):
        return [TextPrompt(prompt, add_special)]
    if not prompt:
        raise InvalidRequest("prompt is empty", param="prompt")
    if isinstance(prompt[0], int):
        return [_tokens(prompt, max_tokens)]
    if len(prompt) > MAX_PROMPTS:
        raise InvalidRequest(
            f"prompt has {len(prompt)} prompts; allowed: {MAX_PROMPTS}", param="prompt"
        )
    if all(isinstance(item, str) for item in prompt):
        return [TextPrompt(str(item), add_special) for item in prompt]
    if all(isinstance(item, list) for item in prompt):
        return [_tokens(item, max_tokens) for item in prompt if isinstance(item, list)]
    raise _mixed()


def _tokens(items: list[str | int | list[int]] | list[int], max_tokens: int) -> TokenPrompt:
    """The length first: nothing is done with a list that cannot fit."""
    if len(items) > max_tokens:
        raise ContextTooLong(
            f"the prompt has {len(items)} tokens; this model's context is {max_tokens} tokens, "
            "prompt and completion together: shorten the prompt",
            param="prompt",
        )
    token_ids = [item for item in items if isinstance(item, int)]
    if len(token_ids) != len(items):
        raise _mixed()
    return TokenPrompt(token_ids)


def _mixed() -> InvalidRequest:
    return InvalidRequest(
        "prompt mixes strings, numbers and lists; send one kind only", param="prompt"
    )
