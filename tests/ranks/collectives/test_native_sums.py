"""Sums in shared memory that a recorded program asks for by itself: one native call a step."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from cluster.errors import RankLost
from kernels.cpu.team import TEAM
from kernels.tape.collective import NativeCollective
from kernels.tape.play import player_of
from kernels.tape.recording import Player
from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.shared_memory import SharedMemoryCollective
from tests.kernels.cpu.test_step_program import STEPS, step
from tests.kernels.kernel_sets import DTYPES
from tests.kernels.tape.test_ranks import (
    EMBEDDED,
    KV_HEADS,
    RANKS,
    kernels_for,
    logits_of_ranks,
    pool,
    record,
    weights,
)
from tests.ranks.collectives.shared_threads import LIMIT_S, run_shared_ranks

pytestmark = pytest.mark.usefixtures("native_collectives")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TEAM, "num_threads", 1)


def rank_player(
    rank: int,
    collective: GroupCollective,
    dtype: torch.dtype,
    root: int | None = None,
    *,
    grouped: bool = False,
) -> Player:
    kernels, own = kernels_for(grouped=grouped), weights(dtype).of_rank(rank)
    return player_of(record(own, kernels, collective, rank, root=root), kernels)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STEPS)
def test_a_program_that_sums_by_itself_has_the_bits_of_one_that_is_cut_at_its_sums(
    name: str, dtype: torch.dtype, grouped: bool
) -> None:
    batches = [step(STEPS[name]), step(STEPS["a mixture"])]

    def work(rank: int, collective: GroupCollective) -> list[torch.Tensor]:
        player = rank_player(rank, collective, dtype, grouped=grouped)
        kv = pool(KV_HEADS // RANKS, dtype)
        assert player.num_native_calls == 1
        return [player(batch, kv) for batch in batches]

    for found in run_shared_ranks(RANKS, work):
        for logits, expected in zip(
            found, logits_of_ranks(player_of, batches, dtype, grouped=grouped)[0], strict=True
        ):
            assert torch.equal(logits, expected)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("root", range(RANKS))
def test_logits_are_written_where_the_one_rank_that_wants_them_has_room_for_all(
    root: int, grouped: bool
) -> None:
    """Of few rows, and of many that go through the last operations in blocks."""
    batches = [step([(1, 9), (1, 30)]), step([(150, 150)], list(range(150)))]

    def work(rank: int, collective: GroupCollective) -> list[torch.Tensor]:
        dtype, kv = torch.bfloat16, pool(KV_HEADS // RANKS, torch.bfloat16)
        for_all = rank_player(rank, collective, dtype, grouped=grouped)
        for_one = rank_player(rank, collective, dtype, root, grouped=grouped)
        return [player(batch, kv) for batch in batches for player in (for_all, for_one)]

    found = run_shared_ranks(RANKS, work)
    for expected, logits in zip(found[root][::2], found[root][1::2], strict=True):
        assert torch.equal(logits, expected)


def test_an_unknown_token_ends_a_program_before_its_first_sum_and_the_next_step_runs() -> None:
    wrong, right = step([(3, 3)]), step([(3, 3)])
    wrong.token_ids[1] = EMBEDDED

    def work(rank: int, collective: GroupCollective) -> int:
        player, kv = rank_player(rank, collective, torch.float32), pool(1, torch.float32)
        with pytest.raises(IndexError, match="1 token ids are not in the vocabulary"):
            player(wrong, kv)
        return len(player(right, kv))

    assert run_shared_ranks(RANKS, work) == [1, 1]


def test_a_program_whose_peer_is_given_up_ends_with_the_loss_and_runs_no_more() -> None:
    """Rank 1 never comes: rank 0 waits inside of its one native call."""

    def work(rank: int, collective: GroupCollective) -> object:
        assert isinstance(collective, SharedMemoryCollective)
        if rank == 1:
            return is_waiting.wait(LIMIT_S) and collective.give_up()
        player, kv = rank_player(rank, collective, torch.float32), pool(1, torch.float32)
        seen = threading.Thread(target=tell_once_in_call, args=(collective, is_waiting))
        seen.start()
        for _ in range(2):
            with pytest.raises(RankLost) as caught:
                player(step([(1, 9)]), kv)
            assert caught.value.ranks == (1,)
        seen.join(LIMIT_S)
        assert collective.called_s >= collective.waited_s > 0
        return collective.in_call_since_s

    is_waiting = threading.Event()
    assert run_shared_ranks(RANKS, work)[0] is None


def tell_once_in_call(collective: GroupCollective, told: threading.Event) -> None:
    """As the watch sees it, on another thread."""
    while collective.in_call_since_s is None:
        threading.Event().wait(0.001)
    told.set()


def test_nothing_is_run_natively_once_the_group_was_left() -> None:
    def work(rank: int, collective: GroupCollective) -> list[int]:
        assert isinstance(collective, NativeCollective)
        ran: list[int] = []

        def program() -> int:
            ran.append(rank)
            return 0

        collective.run_natively(program)
        collective.close()
        with pytest.raises(RankLost, match="left"):
            collective.run_natively(program)
        return ran

    assert run_shared_ranks(1, work) == [[0]]


def test_ranks_that_ask_for_different_sums_are_told() -> None:
    """One has a row more than the other: a bug of ours, which must not become a wrong sum."""

    def work(rank: int, collective: GroupCollective) -> Any:
        player, kv = rank_player(rank, collective, torch.float32), pool(1, torch.float32)
        return player(step([(1, 9)] * (1 + rank)), kv)

    with pytest.raises(Exception, match="different operations|did not come"):
        run_shared_ranks(RANKS, work)
