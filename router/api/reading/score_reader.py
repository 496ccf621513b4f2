"""Bodies of /v1/score, as vLLM has them, and of /v1/rerank, as Jina, Cohere and vLLM have them.

a model that scores    each pair is one prompt
a model of embeddings  each text is one prompt: its pairs are compared afterwards
"""

from __future__ import annotations

import msgspec

from cluster.errors import InvalidRequest
from router.api.reading.decode import decode_known
from router.api.reading.pooling_schema import RerankRequest, ScoreRequest
from router.front.pairs import prompts_of_pairs
from router.front.pooled_rest import PooledRest
from router.front.served_model import ServedModel
from router.front.text_work import Door, SplitBody

MAX_TOLD_CHARS = 1024 * 1024
"""Of documents that an answer repeats."""
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
        queries, documents = _texts(request.text_1), _texts(request.text_2)
        rest = PooledRest.of(self._model, request.model, request.cache_salt, request.timeout_s)
        rest.num_queries, rest.num_documents = len(queries), len(documents)
        prompts = prompts_of_pairs(self._model, queries, documents, request.instruction, self.door)
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
        if request.top_n is not None and request.top_n < 0:
            raise InvalidRequest(
                f"top_n is {request.top_n}; it is 1 or more, or 0 for all", param="top_n"
            )
        documents = [d if isinstance(d, str) else d.text for d in request.documents]
        rest = PooledRest.of(self._model, request.model, request.cache_salt, request.timeout_s)
        rest.num_queries, rest.num_documents = 1, len(documents)
        rest.top_n = request.top_n
        prompts = prompts_of_pairs(
            self._model, [request.query], documents, request.instruction, self.door
        )
        num_told = 0
        if request.return_documents is not False:
            num_told = _told_bytes(documents)
            rest.documents = documents
        return SplitBody(
            msgspec.json.encode(rest), prompts, ignored=ignored, num_limited_bytes=num_told
        )


def _texts(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


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
