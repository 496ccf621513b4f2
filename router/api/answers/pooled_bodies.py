"""Answers of /v1/embeddings, /v1/score and /v1/rerank."""

from __future__ import annotations

import binascii
import time
from collections.abc import Sequence

import msgspec

from cluster.process.loop_share import LoopShare
from router.api.answers.bodies import PromptTokensDetails
from router.front.pooled_prompts import PooledValues
from router.front.pooled_rest import PooledRest
from router.front.pooled_scores import numbers_of, scores_of


class PooledUsage(msgspec.Struct):
    """Tokens, over all prompts: nothing else was computed."""

    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails

    @classmethod
    def of(cls, pooled: Sequence[PooledValues]) -> PooledUsage:
        """Their sum."""
        num_tokens = sum(each.usage.prompt_tokens for each in pooled)
        num_cached = sum(each.usage.cached_tokens for each in pooled)
        return cls(num_tokens, num_tokens, PromptTokensDetails(num_cached))


class EmbeddingBody(msgspec.Struct):
    """One of them: numbers, or their bytes in base64."""

    index: int
    embedding: msgspec.Raw | str
    object: str = "embedding"


class ScoreBody(msgspec.Struct):
    """Of one pair."""

    index: int
    score: float
    object: str = "score"


class ListBody(msgspec.Struct, kw_only=True):
    """Of embeddings, or of scores."""

    id: str
    object: str = "list"
    created: int = msgspec.field(default_factory=lambda: int(time.time()))
    model: str
    data: list[msgspec.Raw] | list[ScoreBody]
    usage: PooledUsage


class ToldDocument(msgspec.Struct):
    """As it was sent."""

    text: str


class RankedBody(msgspec.Struct, omit_defaults=True):
    """One document; the best come first."""

    index: int
    relevance_score: float
    document: ToldDocument | None = None


class RerankBody(msgspec.Struct, kw_only=True):
    """Of /v1/rerank."""

    id: str
    model: str
    results: list[RankedBody]
    usage: PooledUsage


class Named(msgspec.Struct, frozen=True):
    """What an answer is called by."""

    id: str
    model: str


async def embeddings(
    named: Named, rest: PooledRest, pooled: Sequence[PooledValues], share: LoopShare
) -> bytes:
    """Each is put into words in its share of the loop's turns: a thousand values take 0.1 ms."""
    data: list[msgspec.Raw] = []
    for index, each in enumerate(pooled):
        body = EmbeddingBody(index, _in_words(each.values, is_base64=rest.is_base64))
        data.append(msgspec.Raw(msgspec.json.encode(body)))
        await share.breathe()
    usage = PooledUsage.of(pooled)
    return msgspec.json.encode(ListBody(id=named.id, model=named.model, data=data, usage=usage))


async def scores(
    named: Named, rest: PooledRest, pooled: Sequence[PooledValues], share: LoopShare
) -> bytes:
    """In the order of the pairs."""
    found = await scores_of(rest, pooled, share)
    data = [ScoreBody(index, score) for index, score in enumerate(found)]
    usage = PooledUsage.of(pooled)
    return msgspec.json.encode(ListBody(id=named.id, model=named.model, data=data, usage=usage))


async def ranked(
    named: Named, rest: PooledRest, pooled: Sequence[PooledValues], share: LoopShare
) -> bytes:
    """The best first; of equal ones the earlier."""
    scored = enumerate(await scores_of(rest, pooled, share))
    found = sorted(scored, key=lambda item: (-item[1], item[0]))
    texts = rest.documents
    results = [
        RankedBody(index, score, None if texts is None else ToldDocument(texts[index]))
        for index, score in found[: rest.top_n or None]
    ]
    usage = PooledUsage.of(pooled)
    return msgspec.json.encode(
        RerankBody(id=named.id, model=named.model, results=results, usage=usage)
    )


def _in_words(values: bytes, *, is_base64: bool) -> msgspec.Raw | str:
    if is_base64:
        return binascii.b2a_base64(values, newline=False).decode()
    return msgspec.Raw(msgspec.json.encode(numbers_of(values).tolist()))
