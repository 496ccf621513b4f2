"""From a prompt to token ids, without stalling the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cluster.deadline import Deadline
from cluster.errors import DeadlineExceeded
from cluster.process.loop_share import LoopShare
from router.front.caller import NOBODY, Caller
from router.front.generation_request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from router.front.inline_limit import MAX_INLINE_BYTES
from router.front.prompt_encoding import check_length, encode_prompt, num_chars_of, rendered
from router.front.served_model import ServedModel
from router.front.text_work import TextWork


@asynccontextmanager
async def in_time(deadline: Deadline) -> AsyncIterator[None]:
    """Around work on a text that is done elsewhere. Raises DeadlineExceeded."""
    try:
        async with deadline.bound():
            yield
    except TimeoutError:
        raise _too_late() from None


def _too_late() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline passed before the prompt was tokenized; allow more time")


class PromptEncoder:
    """Short texts and ids are encoded here, whatever could hold the interpreter elsewhere: long
    texts, and chats, since a template is the work of whoever made the checkpoint; but for a short
    chat in a template of which it is known beforehand how far it can go."""

    def __init__(self, model: ServedModel, texts: TextWork, share: LoopShare) -> None:
        """`share`: of the loop, with all who work on it a little at a time."""
        self._model = model
        self._texts = texts
        self._share = share

    async def encode(
        self,
        prompt: Prompt,
        deadline: Deadline,
        *,
        max_context_tokens: int,
        caller: Caller = NOBODY,
    ) -> list[int]:
        """Token ids. Raises what `encode_prompt` and `TextWork.encode` raise, and DeadlineExceeded
        where its turn, or a text worker's answer, came too late.

        `max_context_tokens`: as it was when the request was looked at first."""
        await self._turn(deadline)
        if isinstance(prompt, TokenPrompt):
            return encode_prompt(self._model, prompt, max_context_tokens=max_context_tokens)
        check_length(self._model, prompt, max_context_tokens=max_context_tokens)
        text = self._short_text(prompt)
        if text is None:
            async with in_time(deadline):
                return await self._texts.encode(prompt, max_context_tokens, caller)
        if text is not prompt:  # a chat was rendered
            await self._turn(deadline)
        return encode_prompt(self._model, text, max_context_tokens=max_context_tokens)

    async def _turn(self, deadline: Deadline) -> None:
        await self._share.breathe()
        if deadline.has_passed:
            raise _too_late()

    def _short_text(self, prompt: TextPrompt | ChatPrompt) -> TextPrompt | None:
        """Where it takes next to nothing to have it and to encode it."""
        if isinstance(prompt, ChatPrompt):
            if not self._is_short(prompt):
                return None
            text = rendered(self._model, prompt)
            prompt = TextPrompt(text, prompt.rendering.add_special, prompt.keep_last)
        text = prompt.text if prompt.pair is None else prompt.text + prompt.pair
        return prompt if prompt.text and self._model.inline.admits(text) else None

    def _is_short(self, chat: ChatPrompt) -> bool:
        """What a client adds to a template's values is not in its cost."""
        template, rendering = self._model.template, chat.rendering
        is_plain = chat.talk is None and not rendering.variables and not rendering.continue_final
        if template is None or not is_plain:
            return False
        return num_chars_of(chat) <= MAX_INLINE_BYTES and template.is_short(chat.messages)
