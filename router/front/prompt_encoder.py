"""From a prompt to token ids, without stalling the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from cluster.errors import ContextTooLong, InvalidRequest
from router.front.generation_request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from router.front.served_model import ServedModel

INLINE_CHARS = 4096
"""Longer prompts are encoded in a thread. SmolLM2's tokenizer takes 0.2 to 0.4 ms for a thousand
characters on the 2-core machine (`Tokenizer.encode` timed over prompts of 512 to 65,536)."""
NUM_THREADS = 2


class PromptEncoder:
    """Renders and tokenizes. Call `close` at the end of the process."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="tokenize")

    async def encode(self, prompt: Prompt) -> list[int]:
        """Token ids. Raises InvalidRequest (empty, unknown ids, refused by the template) and
        ContextTooLong."""
        if isinstance(prompt, TokenPrompt):
            return self._checked(list(prompt.token_ids))
        num_chars = self._num_chars(prompt)
        self._check_length(num_chars)
        if num_chars <= INLINE_CHARS:
            return self._encode_text(prompt)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._encode_text, prompt)

    def close(self) -> None:
        """Lets running work end and takes no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _encode_text(self, prompt: TextPrompt | ChatPrompt) -> list[int]:
        tokenizer = self._model.tokenizer
        if isinstance(prompt, TextPrompt):
            token_ids = tokenizer.encode(prompt.text, add_special=True)
        else:
            token_ids = tokenizer.encode(self._render(prompt), add_special=False)
        return self._checked(token_ids)

    def _render(self, prompt: ChatPrompt) -> str:
        if self._model.template is None:
            raise InvalidRequest(
                f"{self._model.name} has no chat template; use /v1/completions", param="messages"
            )
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        return self._model.template.render(messages, add_generation_prompt=True)

    def _checked(self, token_ids: list[int]) -> list[int]:
        if not token_ids:
            raise InvalidRequest("prompt is empty; it needs at least one token", param="prompt")
        self._check_context(len(token_ids))
        low, high = min(token_ids), max(token_ids)
        if low < 0 or high >= self._model.vocab_size:
            wrong = low if low < 0 else high
            limit = self._model.vocab_size - 1
            raise InvalidRequest(
                f"prompt has token id {wrong}; allowed: 0 to {limit}", param="prompt"
            )
        return token_ids

    @staticmethod
    def _num_chars(prompt: TextPrompt | ChatPrompt) -> int:
        if isinstance(prompt, TextPrompt):
            if not prompt.text:
                raise InvalidRequest("prompt is empty", param="prompt")
            return len(prompt.text)
        return sum(len(content) for _role, content in prompt.messages)

    def _check_length(self, num_chars: int) -> None:
        """Refuses what cannot fit before any time is spent on it."""
        limit = self._model.max_context_tokens * self._model.max_token_bytes
        if num_chars > limit:
            raise ContextTooLong(
                f"the prompt has {num_chars} characters, which is more than "
                f"{self._model.max_context_tokens} tokens can hold; shorten it",
                param="prompt",
            )

    def _check_context(self, num_tokens: int) -> None:
        limit = self._model.max_context_tokens
        if num_tokens >= limit:
            raise ContextTooLong(
                f"the prompt has {num_tokens} tokens; this model's context is {limit} tokens, "
                "prompt and completion together: shorten the prompt",
                param="prompt",
            )
