"""From a prompt to token ids, without stalling the event loop."""

from __future__ import annotations

from cluster.process.loop_share import LoopShare
from router.front.generation_request import ChatPrompt, Prompt, TextPrompt
from router.front.prompt_encoding import check_length, encode_prompt, num_chars_of, rendered
from router.front.served_model import ServedModel
from router.front.text_work import TextWork

INLINE_CHARS = 4096
"""Longer texts are encoded by a text worker. SmolLM2's tokenizer takes 0.2 to 0.4 ms for a thousand
characters on the 2-core machine (`CheckpointTokenizer.encode` timed over prompts of 512 to 65,536);
to a worker and back is 0.1 ms."""


class PromptEncoder:
    """Short texts and ids are encoded here, whatever could hold the interpreter elsewhere: long
    texts, and chats, since a template is the work of whoever made the checkpoint; but for a short
    chat in a template of which it is known beforehand how far it can go."""

    def __init__(self, model: ServedModel, texts: TextWork, share: LoopShare) -> None:
        """`share`: of the loop, with all who work on it a little at a time."""
        self._model = model
        self._texts = texts
        self._share = share

    async def encode(self, prompt: Prompt) -> list[int]:
        """Token ids. Raises what `encode_prompt` and `TextWork.encode` raise."""
        await self._share.breathe()
        if isinstance(prompt, TextPrompt | ChatPrompt):
            check_length(self._model, prompt)
            prompt = self._written_down(prompt)
            if isinstance(prompt, ChatPrompt) or num_chars_of(prompt) > INLINE_CHARS:
                return await self._texts.encode(prompt, self._model.max_context_tokens)
            await self._share.breathe()  # a chat was rendered
        return encode_prompt(self._model, prompt)

    def _written_down(self, prompt: TextPrompt | ChatPrompt) -> TextPrompt | ChatPrompt:
        """A chat's own text, where it takes next to nothing to have it and to encode it."""
        if isinstance(prompt, TextPrompt) or not self._is_short(prompt):
            return prompt
        text = rendered(self._model, prompt)
        if not 0 < len(text) <= INLINE_CHARS:
            return prompt
        return TextPrompt(text, prompt.rendering.add_special, prompt.keep_last)

    def _is_short(self, chat: ChatPrompt) -> bool:
        """What a client adds to a template's values is not in its cost."""
        template, rendering = self._model.template, chat.rendering
        if template is None or rendering.variables or rendering.continue_final:
            return False
        return num_chars_of(chat) <= INLINE_CHARS and template.is_short(chat.messages)
