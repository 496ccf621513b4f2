"""Bodies of /v1/score, as vLLM has them, and of /v1/rerank, as Jina, Cohere and vLLM have them.

    a model that scores    each pair is one prompt
    a model of embeddings  each text is one prompt: its pairs are compared afterwards
"""

from __future__ import annotations

import msgspec

from cluster.errors import InvalidRequest
from router.api.reading.decode import decode_known
from router.api.reading.pooled_rest import PooledRest
from router.api.reading.pooling_schema import RerankRequest, ScoreRequest
from router.front.generation_request import TextPrompt
from router.front.pairs import pair_prompt
from router.front.pooled_prompts import MAX_INPUTS, no_pooling
from router.front.served_model import ServedModel
from router.front.text_work import Door, SplitBody

MAX_TOLD_CHARS = 1024 * 1024
"""Of documents that an answer repeats."""
MAX_PAIR_CHARS = 8 * 1024 * 1024
"""Of all pairs of a request, each with its query: as much as the largest body has by default."""
_SCORE = msgspec.json.Decoder(ScoreRequest)
_RERANK = msgspec.json.Decoder(RerankRequest)


class ScoreReader:
    """See PooledReader."""

    door = Door.SCORE

    def __init__(self, model: ServedModel, *, ignores_unknown: bool = False) -> None:
        """`ignores_unknown`: unknown fields are left out and told about, instead of refused."""
        self._model = model
        self._ignores_unknown = ignores_unknown

    def split(self, body: bytes) -> SplitBody:
        """See PooledReader."""
        request, ignored = decode_known(body, _SCORE, ignores_unknown=self._ignores_unknown)
        self._model.check_name(request.model)
        queries, documents = _texts(request.text_1, "text_1"), _texts(request.text_2, "text_2")
        if len(queries) not in (1, len(documents)):
            raise InvalidRequest(
                f"text_1 has {len(queries)} texts and text_2 {len(documents)}; send one, or as "
                "many of both",
                param="text_1",
            )
        rest = PooledRest.of(request)
        rest.num_queries, rest.num_documents = len(queries), len(documents)
        prompts = prompts_of_pairs(self._model, queries, documents, request.instruction)
        return SplitBody(msgspec.json.encode(rest), prompts, ignored=ignored)


class RerankReader:
    """See PooledReader."""

    door = Door.RERANK

    def __init__(self, model: ServedModel, *, ignores_unknown: bool = False) -> None:
        """`ignores_unknown`: unknown fields are left out and told about, instead of refused."""
        self._model = model
        self._ignores_unknown = ignores_unknown

    def split(self, body: bytes) -> SplitBody:
        """See PooledReader."""
        request, ignored = decode_known(body, _RERANK, ignores_unknown=self._ignores_unknown)
        self._model.check_name(request.model)
        if request.top_n is not None and request.top_n < 0:
            raise InvalidRequest(
                f"top_n is {request.top_n}; it is 1 or more, or 0 for all", param="top_n"
            )
        documents = [d if isinstance(d, str) else d.text for d in request.documents]
        rest = PooledRest.of(request)
        rest.num_queries, rest.num_documents = 1, len(documents)
        rest.top_n = request.top_n
        prompts = prompts_of_pairs(self._model, [request.query], documents, request.instruction)
        num_told = 0
        if request.return_documents is not False:
            num_told = _told_bytes(documents)
            rest.documents = documents
        return SplitBody(
            msgspec.json.encode(rest), prompts, ignored=ignored, num_limited_bytes=num_told
        )


def prompts_of_pairs(
    model: ServedModel, queries: list[str], documents: list[str], instruction: str | None
) -> list[TextPrompt]:
    """Of pairs whose numbers fit. Raises InvalidRequest."""
    pooling = model.pooling
    if pooling is None:
        raise no_pooling(model)
    num_prompts = len(documents) + len(queries) * pooling.is_embedding
    if not documents or num_prompts > MAX_INPUTS:
        raise InvalidRequest(
            f"{len(documents)} documents; allowed: 1 to {MAX_INPUTS}, with their queries",
            param="documents",
        )
    if pooling.is_embedding:
        if instruction is not None:
            raise InvalidRequest("this model takes no instruction", param="instruction")
        return [TextPrompt(text) for text in (*queries, *documents)]
    if not all((*queries, *documents)):
        raise InvalidRequest("a text is empty; each needs a character", param="documents")
    _check_together(queries, documents)
    each = queries * len(documents) if len(queries) == 1 else queries
    pairs = zip(each, documents, strict=True)
    prompts = [pair_prompt(pooling, query, text, instruction) for query, text in pairs]
    return prompts


def _check_together(queries: list[str], documents: list[str]) -> None:
    """Raises InvalidRequest: a long query times many documents is more than the body has."""
    num_chars = sum(map(len, documents)) + sum(map(len, queries)) * (
        len(documents) // len(queries)
    )
    if num_chars > MAX_PAIR_CHARS:
        raise InvalidRequest(
            f"{len(documents)} pairs have {num_chars} characters; allowed: {MAX_PAIR_CHARS}: send "
            "fewer documents at once, or a shorter query",
            param="documents",
        )


def _texts(texts: str | list[str], name: str) -> list[str]:
    found = [texts] if isinstance(texts, str) else texts
    if not found:
        raise InvalidRequest(f"{name} is empty", param=name)
    return found


def _told_bytes(documents: list[str]) -> int:
    """As JSON, at most. Raises InvalidRequest."""
    num_chars = sum(map(len, documents))
    if num_chars > MAX_TOLD_CHARS:
        raise InvalidRequest(
            f"documents have {num_chars} characters, and an answer repeats {MAX_TOLD_CHARS} at "
            "most; set return_documents to false",
            param="return_documents",
        )
    return len(msgspec.json.encode(documents))
