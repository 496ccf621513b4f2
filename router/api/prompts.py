"""The four forms of a completion's `prompt`."""

from __future__ import annotations

from cluster.errors import InvalidRequest
from router.front.generation_request import TextPrompt, TokenPrompt

MAX_PROMPTS = 32


def to_prompts(prompt: str | list[str | int | list[int]]) -> list[TextPrompt | TokenPrompt]:
    """A string, strings, token ids, or lists of token ids. Raises InvalidRequest."""
    if isinstance(prompt, str):
        return [TextPrompt(prompt)]
    if not prompt:
        raise InvalidRequest("prompt is empty", param="prompt")
    if all(isinstance(item, int) for item in prompt):
        return [_tokens(prompt)]
    if len(prompt) > MAX_PROMPTS:
        raise InvalidRequest(
            f"prompt has {len(prompt)} prompts; allowed: {MAX_PROMPTS}", param="prompt"
        )
    if all(isinstance(item, str) for item in prompt):
        return [TextPrompt(str(item)) for item in prompt]
    if all(isinstance(item, list) for item in prompt):
        return [_tokens(item) for item in prompt if isinstance(item, list)]
    raise InvalidRequest(
        "prompt mixes strings, numbers and lists; send one kind only", param="prompt"
    )


def _tokens(items: list[str | int | list[int]] | list[int]) -> TokenPrompt:
    return TokenPrompt(tuple(item for item in items if isinstance(item, int)))
