"""The work of a text worker: from texts and bodies to ids, in one thread, with nobody waiting on
its interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cluster.errors import RequestTooLarge
from router.api.reading.chat_reader import ChatReader
from router.api.reading.completion_reader import CompletionReader
from router.api.reading.detokenize_reader import DetokenizeReader
from router.api.reading.embeddings_reader import EmbeddingsReader
from router.api.reading.messages_reader import CountReader, MessagesReader
from router.api.reading.responses_reader import ResponsesReader
from router.api.reading.score_reader import RerankReader, ScoreReader
from router.api.reading.tokenize_reader import TokenizeReader
from router.front.generation_request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from router.front.pairs import num_chars_of_all
from router.front.pooling_checks import check_input_tokens
from router.front.prompt_encoding import encode_prompt
from router.front.served_model import ServedModel
from router.front.text_work import LARGE_BODY_BYTES, Door, ReadBody, SplitBody
from router.grpc_front.pooled_reading import split_embed, split_score
from router.grpc_front.request_reading import split_message

_Reader = (
    MessagesReader
    | CountReader
    | ResponsesReader
    | ChatReader
    | CompletionReader
    | TokenizeReader
    | DetokenizeReader
    | EmbeddingsReader
    | ScoreReader
    | RerankReader
)
_READERS: Final[dict[Door, type[_Reader]]] = {
    Door.CHAT: ChatReader,
    Door.COMPLETION: CompletionReader,
    Door.TOKENIZE: TokenizeReader,
    Door.DETOKENIZE: DetokenizeReader,
    Door.MESSAGES: MessagesReader,
    Door.COUNT_TOKENS: CountReader,
    Door.RESPONSES: ResponsesReader,
    Door.EMBEDDINGS: EmbeddingsReader,
    Door.SCORE: ScoreReader,
    Door.RERANK: RerankReader,
}


_MESSAGES: Final = {
    Door.GRPC: split_message,
    Door.GRPC_EMBED: split_embed,
    Door.GRPC_SCORE: split_score,
}


class TextDesk:
    """One call at a time, from any thread."""

    def __init__(
        self,
        model: ServedModel,
        *,
        ignores_unknown: bool = False,
        on_more: Callable[[int], None] = lambda num_chars: None,
    ) -> None:
        """`model.context_limit` is not asked: each call brings the limit of its moment.

        `ignores_unknown`: see the readers; of bodies over HTTP. `on_more` hears of texts that are
        longer than the body that they are made of, before they are encoded: of their characters."""
        self._on_more = on_more
        self._model = model
        self.num_chars = 0
        """Of the texts that were made of the last body and encoded, also where one was refused;
        whoever asks for anything else sets it to 0."""
        self._ignores_unknown = ignores_unknown

    def encode(self, prompt: Prompt, max_context_tokens: int) -> list[int]:
        """Checked ids. Raises InvalidRequest and its kin."""
        return encode_prompt(self._model, prompt, max_context_tokens=max_context_tokens)

    def read(self, door: Door, body: bytes, max_context_tokens: int) -> ReadBody:
        """Every check that a small body meets, then its prompts as ids. Raises RequestTooLarge
        where the rest is large as well: it would be read once more, on the event loop."""
        self.num_chars, model = 0, self._with_limit(max_context_tokens)
        split = self._split(model, door, body)
        if (num_bytes := len(split.rest) - split.num_limited_bytes) > LARGE_BODY_BYTES:
            raise RequestTooLarge(
                f"the request has {num_bytes} bytes beside its prompt, tools and prediction; "
                f"allowed: {LARGE_BODY_BYTES}"
            )
        if (num_chars := num_chars_of_all(split.prompts)) > len(body):
            self._on_more(num_chars)
        prompts, num_tokens = list[TokenPrompt](), 0
        for prompt in split.prompts:
            self.num_chars += num_chars_of_all((prompt,))
            prompts.append(_encoded(model, split, prompt))
            num_tokens += len(prompts[-1].token_ids)
            if door.is_pooled:
                check_input_tokens(len(prompts), num_tokens, door.inputs)
        return ReadBody(split.rest, tuple(prompts), split.ignored, self.num_chars)

    def _with_limit(self, max_context_tokens: int) -> ServedModel:
        return replace(self._model, context_limit=lambda: max_context_tokens)

    def _split(self, model: ServedModel, door: Door, body: bytes) -> SplitBody:
        if (split := _MESSAGES.get(door)) is not None:
            return split(model, body)
        reader = _READERS[door](model, ignores_unknown=self._ignores_unknown)
        return reader.split(body)


def _encoded(model: ServedModel, split: SplitBody, prompt: Prompt) -> TokenPrompt:
    token_ids = encode_prompt(model, prompt, max_context_tokens=model.max_context_tokens)
    return TokenPrompt(token_ids, _text(model, prompt) if split.is_echoed else None)


def _text(model: ServedModel, prompt: Prompt) -> str:
    """Of a prompt that has been checked; a chat is never echoed."""
    assert not isinstance(prompt, ChatPrompt)
    if isinstance(prompt, TextPrompt):
        return prompt.text
    return model.tokenizer.decode(prompt.token_ids)
