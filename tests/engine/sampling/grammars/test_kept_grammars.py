"""How many compiled grammars an engine keeps; how they are shared: see KeptInShares."""

from __future__ import annotations

from cluster.grammar import DIGEST_BYTES
from engine.sampling.grammars.kept_grammars import (
    MAX_KEPT,
    MAX_KEPT_BYTES,
    KeptGrammars,
    likely_bytes,
)
from router.grammar.limits import MAX_GRAMMAR_BYTES


def test_grammars_of_the_usual_size_are_kept_as_many_and_the_largest_are_not() -> None:
    assert MAX_KEPT * likely_bytes(2048) <= MAX_KEPT_BYTES
    assert MAX_KEPT * likely_bytes(MAX_GRAMMAR_BYTES) > 4 * MAX_KEPT_BYTES


def test_an_engine_keeps_so_many_and_so_many_bytes() -> None:
    kept: KeptGrammars[int] = KeptGrammars()
    for i in range(2 * MAX_KEPT):
        kept.put(i.to_bytes(DIGEST_BYTES), i, owner=b"a", num_bytes=likely_bytes(2048))
    assert len(kept) == MAX_KEPT
    kept.put(b"large", -1, owner=b"b", num_bytes=MAX_KEPT_BYTES // 2)
    assert kept.num_bytes <= MAX_KEPT_BYTES and kept.get(b"large") == -1
