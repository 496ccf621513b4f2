"""Mixtures whose ranks have sequences of their own, in real processes over NIXL, on either side of
a handover."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cluster.errors import RankLost
from engine.contract.commands import Connect
from tests.decode_worker.group_handover import (
    Handover,
    decode_side,
    hand_over_together,
    prefill_side,
    request_of,
)
from tests.engine.model.mixture_cards import card_of
from tests.engine.model.parity import random_prompts
from tests.engine.runner.ranks.groups import greedy_tokens, spec_of
from tests.kvtransfer.kv_blocks import wait_until

pytestmark = pytest.mark.timeout(300)
NUM_TOKENS = 12
LENGTHS = (100, 30, 64, 17)
LIMITS: dict[str, Any] = {"max_context_tokens": 192, "kv_memory_bytes": 4 << 20}
BLOCKS, HEADS = True, False
"""What the ranks of a group share."""


@pytest.mark.parametrize(
    ("family", "ranks", "shared", "sizes"),
    [
        ("v3", (2, 2), (BLOCKS, BLOCKS), (16, 64)),
        ("v3", (1, 2), (HEADS, BLOCKS), (16, 16)),
        ("mixtral", (3, 2), (BLOCKS, HEADS), (16, 16)),
        ("mixtral", (2, 3), (HEADS, BLOCKS), (64, 16)),
    ],
    ids=str,
)
def test_prompts_go_from_every_home_to_every_home_and_go_on_as_at_one_rank(
    family: str,
    ranks: tuple[int, int],
    shared: tuple[bool, bool],
    sizes: tuple[int, int],
    tmp_path: Path,
) -> None:
    card = card_of(family, tmp_path)
    spec = spec_of(card, 1, **LIMITS)
    prompts = random_prompts(LENGTHS, card.config.vocab_size)
    alone = greedy_tokens(spec, prompts, NUM_TOKENS)
    with ExitStack() as closers:
        source = prefill_side(spec, ranks[0], sizes[0], closers, shares_blocks=shared[0])
        target = decode_side(spec, ranks[1], sizes[1], closers, shares_blocks=shared[1])
        handovers = hand_over_together(source, target, prompts, NUM_TOKENS)
        assert [each.completion.token_ids() for each in handovers] == alone
        again = hand_over_together(source, target, prompts, NUM_TOKENS)  # of blocks in its cache
        assert [each.completion.token_ids() for each in again] == alone
        for side, num_ranks, shares_blocks, used in (
            (source, ranks[0], shared[0], [each.source_ids for each in handovers]),
            (target, ranks[1], shared[1], [each.block_ids for each in handovers]),
        ):
            homes = side.engine.placement.pool.homes
            found = [{homes.home_of(block) for block in block_ids} for block_ids in used]
            assert all(len(each) == 1 for each in found)
            assert set.union(*found) == set(range(num_ranks if shares_blocks else 1))
            assert side.engine.check_invariants() == []


def test_prompts_wait_for_blocks_of_a_home_and_none_is_lost_on_either_side(tmp_path: Path) -> None:
    """Each home has room for about two of them, here and there."""
    card = card_of("v3", tmp_path)
    spec = spec_of(card, 1, max_context_tokens=192, kv_memory_bytes=1 << 17)
    prompts = random_prompts(tuple(range(40, 104, 8)), card.config.vocab_size)
    alone = greedy_tokens(spec, prompts, 2 * NUM_TOKENS)
    with ExitStack() as closers:
        source = prefill_side(spec, 2, 16, closers, shares_blocks=True)
        target = decode_side(spec, 2, 16, closers, shares_blocks=True)
        handovers = hand_over_together(source, target, prompts, 2 * NUM_TOKENS)
        assert [each.completion.token_ids() for each in handovers] == alone
        for side in (source, target):
            pool = side.engine.placement.pool
            assert [pool.available_at(home) for home in range(2)] == [pool.homes.blocks_each] * 2
            assert side.engine.check_invariants() == []


def test_when_the_rank_that_reads_for_its_home_is_stopped_the_group_ends_with_its_name(
    tmp_path: Path,
) -> None:
    """The conductor has a request as well, which nobody reads for: it waits for words alone."""
    card = card_of("v3", tmp_path)
    spec = spec_of(card, 1, **LIMITS)
    with ExitStack() as closers:
        source = prefill_side(spec, 1, 16, closers)
        target = decode_side(spec, 2, 16, closers, shares_blocks=True)
        assert source.extension.peer is not None
        target.tell(Connect(source.incarnation, source.extension.peer))
        handovers = [
            Handover(source, target, structs.replace(request_of(prompt, 3), request_id=f"r{at}"))
            for at, prompt in enumerate(random_prompts(LENGTHS[:2], card.config.vocab_size))
        ]

        def turn_target() -> None:
            heard = target.turn()
            for handover in handovers:
                handover.hear_target(heard)

        while not all(handover.block_ids for handover in handovers):
            turn_target()
        home_of = target.engine.placement.pool.homes.home_of
        (hurt,) = (each for each in handovers if home_of(each.block_ids[0]) == 1)
        os.kill(target.spawner.ranks[1].pid, signal.SIGSTOP)
        commands = hurt.announced()
        while not commands:
            commands = hurt.announced()
        for command in commands:
            target.tell(command)
        with pytest.raises(RankLost, match="rank 1 of generation") as lost:
            wait_until(lambda: bool(turn_target() or hurt.fetched), "the read's end")
    assert (lost.value.ranks, lost.value.ending) == ((1,), "stood still")
