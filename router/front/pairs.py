"""Two texts whose match a model scores, as one prompt."""

from __future__ import annotations

from cluster.errors import InvalidRequest
from cluster.models.pooling import Pooling, PoolingKind
from router.front.generation_request import TextPrompt

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""Qwen3-Reranker's own, where a client gives none."""
MAX_INSTRUCTION_CHARS = 4096
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
"""Both as Qwen3-Reranker was trained with them."""


def pair_prompt(
    pooling: Pooling, query: str, document: str, instruction: str | None = None
) -> TextPrompt:
    """Of a model that scores. Raises InvalidRequest for an instruction that it has no place for."""
    if pooling.kind is PoolingKind.YES_NO:
        asked = INSTRUCTION if instruction is None else instruction
        if len(asked) > MAX_INSTRUCTION_CHARS:
            raise InvalidRequest(
                f"instruction has {len(asked)} characters; allowed: {MAX_INSTRUCTION_CHARS}",
                param="instruction",
            )
        text = f"<Instruct>: {asked}\n<Query>: {query}\n<Document>: {document}"
        return TextPrompt(f"{_BEFORE}{text}{_AFTER}", add_special=False)
    if instruction is not None:
        raise InvalidRequest(
            "this model takes no instruction beside its two texts", param="instruction"
        )
    return TextPrompt(query, pair=document)
