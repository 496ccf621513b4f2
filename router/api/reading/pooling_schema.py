"""The bodies of /v1/embeddings, /v1/score and /v1/rerank, as OpenAI's, vLLM's and Jina's clients
send them, plus our documented extensions. Unknown fields are errors; a null is an absent field."""

from __future__ import annotations

from typing import Any

import msgspec


class PoolingFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What all three share."""

    model: str | None = None
    user: str | None = None
    cache_salt: str | None = None
    timeout_s: float | None = None
    priority: Any = None
    request_id: Any = None


class EmbeddingsRequest(PoolingFields):
    """POST /v1/embeddings."""

    input: str | list[str | int | list[int]]
    encoding_format: str | None = None
    dimensions: int | None = None
    add_special_tokens: bool | None = None


class ScoreRequest(PoolingFields):
    """POST /v1/score: one text against each, or each against its own."""

    text_1: str | list[str]
    text_2: str | list[str]
    instruction: str | None = None


class Document(msgspec.Struct):
    """One text, as Cohere's clients may send it."""

    text: str


class RerankRequest(PoolingFields):
    """POST /v1/rerank."""

    query: str
    documents: list[str | Document]
    top_n: int | None = None
    return_documents: bool | None = None
    instruction: str | None = None
