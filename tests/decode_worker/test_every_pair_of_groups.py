"""A prompt from any group of SmolLM2's ranks to any other: the reference's tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from cluster.models.cache.store import ModelStore
from engine.contract.spec import EngineSpec
from tests.decode_worker.group_handover import Side, decode_side, hand_over, prefill_side
from tests.engine.runner.ranks.groups import spec_of
from tests.fleet.reference import NUM_NEW_TOKENS, Reference

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
RANKS = (1, 2, 3)
"""Of three KV heads: all, one and two, one each."""
MORE = pytest.mark.minutes
SIZES = [(16, 64), pytest.param((16, 16), marks=MORE), pytest.param((64, 16), marks=MORE)]
"""In this order the sources of one pair, or its targets, are those of the next."""


class Groups:
    """Three that compute prompts, or three that decode: those of the block size asked for last."""

    def __init__(
        self, spec: EngineSpec, make: Callable[[EngineSpec, int, int, ExitStack], Side]
    ) -> None:
        self._spec, self._make = spec, make
        self._block_size: int | None = None
        self._sides: list[Side] = []
        self._closers = ExitStack()

    def of(self, block_size: int) -> list[Side]:
        """Those that run, or new ones in their place."""
        if block_size != self._block_size:
            self.close()
            self._block_size = block_size
            for num_ranks in RANKS:
                self._sides.append(self._make(self._spec, num_ranks, block_size, self._closers))
        return self._sides

    def close(self) -> None:
        """Ends them."""
        self._block_size = None
        self._sides.clear()
        self._closers.close()


@pytest.fixture(scope="module")
def groups() -> Iterator[tuple[Groups, Groups]]:
    """Sources and targets."""
    limits = {"max_context_tokens": 512, "kv_memory_bytes": 96 << 20}
    spec = spec_of(ModelStore().resolve("smollm2"), 1, **limits)
    with ExitStack() as closers:
        both = Groups(spec, prefill_side), Groups(spec, decode_side)
        for each in both:
            closers.callback(each.close)
        yield both


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_group_hands_over_to_every_other(
    sizes: tuple[int, int], groups: tuple[Groups, Groups]
) -> None:
    reference = Reference()
    prompts, answers = reference.prompts, reference.answers
    sides = [each.of(size) for each, size in zip(groups, sizes, strict=True)]
    cache_root = bytes(sizes) * 8  # nothing of it is there already
    for index, (source, target) in enumerate(itertools.product(*sides), start=3):
        handover = hand_over(source, target, prompts[index], NUM_NEW_TOKENS, cache_root=cache_root)
        assert handover.completion.token_ids() == answers[index], index
    for side in itertools.chain(*sides):
        assert side.engine.check_invariants() == []
