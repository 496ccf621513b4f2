"""Two texts whose match a model scores, as one prompt."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.errors import InvalidRequest
from cluster.models.pooling import Pooling, PoolingKind
from router.front.generation_request import Prompt, TextPrompt
from router.front.pooling_checks import MAX_INPUTS, no_pooling
from router.front.served_model import ServedModel
from router.front.text_work import Door

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""Qwen3-Reranker's own, where a client gives none."""
MAX_INSTRUCTION_CHARS = 4096
MAX_REPEATED_CHARS = 2 * 1024 * 1024
"""Of what each pair of a request has beside its document: the query, and the words around it. What
a body of 32 KiB may become; SmolLM2 takes 1.4 s to encode as much."""
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


def prompts_of_pairs(
    model: ServedModel,
    queries: list[str],
    documents: list[str],
    instruction: str | None,
    door: Door,
) -> list[TextPrompt]:
    """Of a model that scores one for each pair; of one of embeddings one for each query, then one
    for each document. Raises InvalidRequest, with the field of that door."""
    pooling = model.pooling
    if pooling is None:
        raise no_pooling(model)
    if len(queries) not in (1, len(documents)):
        raise InvalidRequest(
            f"{len(queries)} queries and {len(documents)} documents; send one query, or as many "
            "of both",
            param=door.queries,
        )
    num_prompts = len(documents) + len(queries) * pooling.is_embedding
    if not documents or num_prompts > MAX_INPUTS:
        raise InvalidRequest(
            f"{len(documents)} documents; allowed: 1 to {MAX_INPUTS}, with their queries",
            param=door.inputs,
        )
    if pooling.is_embedding:
        if instruction is not None:
            raise InvalidRequest("this model takes no instruction", param="instruction")
        return [TextPrompt(text) for text in (*queries, *documents)]
    for param, texts in ((door.queries, queries), (door.inputs, documents)):
        if not all(texts):
            raise InvalidRequest("a text is empty; each needs a character", param=param)
    _check_repeated(pooling, queries, len(documents), instruction, door)
    each = queries * len(documents) if len(queries) == 1 else queries
    pairs = zip(each, documents, strict=True)
    return [pair_prompt(pooling, query, text, instruction) for query, text in pairs]


def _check_repeated(
    pooling: Pooling, queries: list[str], num_pairs: int, instruction: str | None, door: Door
) -> None:
    """Raises InvalidRequest: of a long query and many documents more is made than was sent."""
    around = len(pair_prompt(pooling, "", "", instruction).text)
    num_chars = sum(map(len, queries)) * (num_pairs // len(queries)) + around * num_pairs
    if num_chars > MAX_REPEATED_CHARS:
        raise InvalidRequest(
            f"{num_pairs} pairs have {num_chars} characters beside their documents; allowed: "
            f"{MAX_REPEATED_CHARS}: send fewer documents at once, or a shorter query",
            param=door.inputs,
        )


def num_chars_of_all(prompts: Sequence[Prompt]) -> int:
    """Of texts, with what is put around them."""
    texts = (prompt for prompt in prompts if isinstance(prompt, TextPrompt))
    return sum(len(prompt.text) + len(prompt.pair or "") for prompt in texts)
