"""A prompt from any group of SmolLM2's ranks to any other: the reference's tokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cluster.models.cache.store import ModelStore
from tests.decode_worker.group_handover import Side, decode_side, hand_over, prefill_side
from tests.engine.runner.ranks.groups import spec_of
from tests.fleet.reference import NUM_NEW_TOKENS, Reference

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
RANKS = (1, 2, 3)
"""Of three KV heads: all, one and two, one each."""
SIZES = [(16, 16), (16, 64), (64, 16)]


@pytest.fixture(params=SIZES, ids=str)
def sides(request: pytest.FixtureRequest) -> Iterator[tuple[list[Side], list[Side]]]:
    """Three groups that compute prompts, and three that decode."""
    limits = {"max_context_tokens": 512, "kv_memory_bytes": 96 << 20}
    spec = spec_of(ModelStore().resolve("smollm2"), 1, **limits)
    theirs, ours = request.param
    with ExitStack() as closers:
        sources = [prefill_side(spec, num_ranks, theirs, closers) for num_ranks in RANKS]
        targets = [decode_side(spec, num_ranks, ours, closers) for num_ranks in RANKS]
        yield sources, targets


def test_every_group_hands_over_to_every_other(sides: tuple[list[Side], list[Side]]) -> None:
    reference = Reference()
    prompts, answers = reference.prompts, reference.answers
    for index, (source, target) in enumerate(itertools.product(*sides), start=3):
        handover = hand_over(source, target, prompts[index], NUM_NEW_TOKENS)
        assert handover.completion.token_ids() == answers[index], index
    for side in itertools.chain(*sides):
        assert side.engine.check_invariants() == []
