"""What pooled prompts say of pairs of texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

from cluster.process.loop_share import LoopShare
from router.front.pooled_prompts import PooledValues
from router.front.pooled_rest import PooledRest


async def scores_of(
    rest: PooledRest, pooled: Sequence[PooledValues], share: LoopShare
) -> list[float]:
    """Of each pair: as the model scores it, or the cosine between two embeddings, which takes 0.1
    ms of the loop for each."""
    if len(pooled) == rest.num_documents:
        return [numbers_of(each.values)[0] for each in pooled]
    vectors = [numbers_of(each.values) for each in pooled]
    queries, documents = vectors[: rest.num_queries], vectors[rest.num_queries :]
    each = queries * len(documents) if len(queries) == 1 else queries
    cosines = []
    for pair in zip(each, documents, strict=True):
        cosines.append(_cosine(*pair))
        await share.breathe()
    return cosines


def numbers_of(values: bytes) -> memoryview[float]:
    """Float32, as it came; every machine that this runs on is little-endian."""
    return memoryview(values).cast("f")


def _cosine(a: memoryview[float], b: memoryview[float]) -> float:
    length = math.sqrt(_product(a, a) * _product(b, b))
    return _product(a, b) / length if length else 0.0


def _product(a: memoryview[float], b: memoryview[float]) -> float:
    return sum(map(mul, a, b), 0.0)
