"""A subject without a model: words are tokens, and what it predicts is written by the test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import torch

CHUNK = 7


class WordTokenizer:
    """Splits at spaces; every new word gets the next id."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def encode(self, text: str) -> list[int]:
        ids = []
        for word in re.findall(r"\s*\S+\s*?", text):
            if word not in self.words:
                self.words.append(word)
            ids.append(self.words.index(word))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.words[i] for i in ids)


class WordSubject:
    """Follows the interface of engine.offline.quality.subject.Subject."""

    def __init__(
        self,
        *,
        predict: Callable[[int], torch.Tensor] | None = None,
        answer: Callable[[str], str] = lambda prompt: "",
        max_context_tokens: int = 4096,
    ) -> None:
        self.tokenizer = WordTokenizer()
        self.max_context_tokens = max_context_tokens
        self.pieces: list[list[int]] = []
        self.prompts: list[list[int]] = []
        self._predict = predict
        self._answer = answer

    def logits(self, token_ids: Sequence[int]) -> Iterator[torch.Tensor]:
        assert self._predict is not None
        self.pieces.append(list(token_ids))
        for start in range(0, len(token_ids), CHUNK):
            yield torch.stack([self._predict(t) for t in token_ids[start : start + CHUNK]])

    def continuations(self, prompts: Sequence[list[int]], max_tokens: int) -> list[str]:
        self.prompts += prompts
        return [self._answer(self.tokenizer.decode(prompt)) for prompt in prompts]
