"""A group that reads: its conductor's reader and the other ranks', over a line of the test."""

from __future__ import annotations

import pytest

from cluster.block_span import BlockRun
from cluster.errors import RankLost
from kvtransfer.group_reader import LIMIT_S, GroupReader
from kvtransfer.loopback import LoopbackNetwork
from kvtransfer.rank_reader import RankReader
from kvtransfer.read_job import ReadJob, ReadResult
from tests.kvtransfer.hand_line import Line
from tests.kvtransfer.ranked_pools import (
    NUM_TOKENS,
    DecodeRank,
    PrefillGroup,
    marked_cache,
    ranks_of,
)
from tests.manual_clock import ManualClock


class Scene:
    """Three ranks that read from two; rank by rank turned by hand."""

    def __init__(self, sizes: tuple[int, int] = (16, 64), world_size: int = 3) -> None:
        network, cache = LoopbackNetwork(), marked_cache(3)
        self.source = PrefillGroup(cache, 2, sizes[0], network)
        self.ranks = [
            DecodeRank(cache, share, sizes[1], network) for share in ranks_of(3, world_size)
        ]
        self.line = Line(world_size)
        self.clock = ManualClock()
        self.reader = GroupReader(
            self.ranks[0].core,
            self.line,
            world_size,
            homes=self.ranks[0].pool.homes,
            clock=self.clock,
        )
        self.others = [RankReader(rank.core, at) for at, rank in enumerate(self.ranks) if at]
        self.reader.connect("p", self.source.peer())
        self.run = BlockRun(0, NUM_TOKENS // sizes[1])
        self.job = ReadJob(
            request_id="r",
            incarnation="p",
            span=self.source.span(0, NUM_TOKENS // sizes[0], 1),
            local_block_ids=self.ranks[0].slots(self.run),
            into=self.run,
        )

    def turn(self, *ranks: int) -> None:
        """These of the others take their words, and read on."""
        for rank in ranks or range(1, len(self.ranks)):
            other, words = self.others[rank - 1], self.line.told[rank - 1]
            while words:
                other.handle(words.popleft())
            self.line.said += [(rank, word) for word in other.poll()]

    def finish(self, *ranks: int, max_turns: int = 60) -> list[ReadResult]:
        """Turns these and the conductor until something has ended; none: all."""
        results: list[ReadResult] = []
        for _ in range(max_turns):
            self.turn(*ranks)
            results += self.reader.poll()
            if results:
                break
        return results


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_job_is_one_result_when_every_rank_has_verified_its_part(scene: Scene) -> None:
    scene.reader.submit(scene.job)
    (result,) = scene.finish()
    assert result.job is scene.job and result.error == ""
    assert result.verified == (range(0, 3),)
    assert result.num_bytes == sum(rank.pool.block_bytes for rank in scene.ranks) * 3
    assert all(rank.has(scene.run) for rank in scene.ranks)
    assert not scene.reader.busy and not any(other.busy for other in scene.others)
    assert scene.reader.transport_in_use == "loopback"


def test_words_of_ranks_are_looked_for_while_there_is_a_job_and_not_in_every_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    hear = scene.line.hear

    def noted() -> list[tuple[int, bytes]]:
        looks.append(1)
        return hear()

    monkeypatch.setattr(scene.line, "hear", noted)
    assert scene.reader.poll() == [] and not looks
    scene.reader.submit(scene.job)
    assert scene.finish() and looks
    looks.clear()
    assert scene.reader.poll() == [] and not looks


def test_the_request_has_reads_until_the_last_rank_has_let_go(scene: Scene) -> None:
    scene.reader.submit(scene.job)
    assert scene.finish(1) == []  # rank 2 takes no part
    assert scene.reader.busy and scene.reader.has_reads("r")
    assert scene.ranks[0].has(scene.run) and scene.ranks[1].has(scene.run)
    (result,) = scene.finish(2)
    assert result.error == "" and not scene.reader.has_reads("r")


def wait_on(scene: Scene, seconds: float) -> None:
    """The conductor alone takes its turns."""
    for _ in range(int(seconds)):
        scene.clock.advance(1.0)
        assert scene.reader.poll() == []


def test_a_rank_whose_link_is_slow_is_waited_for(scene: Scene) -> None:
    scene.reader.submit(scene.job)
    assert scene.finish(1) == []  # rank 2 takes its time
    wait_on(scene, 10 * LIMIT_S)
    (result,) = scene.finish(2)
    assert result.error == "" and result.verified == (range(0, 3),)


@pytest.mark.parametrize("how", ["cancel", "abandon", "disconnect"])
def test_a_rank_that_is_told_to_and_never_lets_go_is_lost_with_its_group(
    how: str, scene: Scene
) -> None:
    scene.reader.submit(scene.job)
    assert scene.finish(1) == []  # rank 2 takes no part
    wait_on(scene, 2 * LIMIT_S)
    told_s = scene.clock()
    if how == "cancel":
        scene.reader.cancel("r")
    elif how == "abandon":
        scene.reader.abandon("r", "p")
    else:
        scene.reader.disconnect("p")
    with pytest.raises(RankLost, match="rank 2 has not let go of blocks") as lost:
        wait_on(scene, 2 * LIMIT_S)
    assert lost.value.ranks == (2,)
    assert LIMIT_S < scene.clock() - told_s < LIMIT_S + 5.0


def test_what_one_rank_has_nothing_of_is_read_by_no_other_to_its_end(scene: Scene) -> None:
    scene.reader.submit(scene.job)
    scene.ranks[0].core.cancel("r")  # its part fails at once
    assert scene.reader.poll() == []
    scene.turn()  # the others hear of it as they begin
    (result,) = scene.finish()
    assert result.error.startswith("rank 0: cancelled") and result.verified == ()
    assert result.num_bytes == 0
    assert not scene.reader.has_reads("r") and not any(other.busy for other in scene.others)


def test_blocks_that_one_rank_has_are_read_on_by_the_others(scene: Scene) -> None:
    scene.source.pools[0].blocks[9].view(-1)[0] ^= 1  # of head 0: rank 0 misses one of three
    scene.reader.submit(scene.job)
    for _ in range(60):
        assert scene.reader.poll() == []
    (result,) = scene.finish()
    assert result.verified == (range(0, 2),)


def test_a_block_is_verified_where_all_ranks_say_so(scene: Scene) -> None:
    pools = scene.source.pools
    pools[0].blocks[9].view(-1)[0] ^= 1  # of head 0, in the last of our blocks
    pools[1].blocks[0].view(-1)[-1] ^= 1  # of head 2, in the first one
    scene.reader.submit(scene.job)
    (result,) = scene.finish()
    assert result.verified == (range(1, 2),)
    assert result.error.startswith("rank 0: 1 of 3 blocks from p do not match their digests")


def test_a_fault_at_another_rank_is_told_with_its_number(scene: Scene) -> None:
    scene.source.pools[1].blocks[0].view(-1)[-1] ^= 1
    scene.reader.submit(scene.job)
    (result,) = scene.finish()
    assert result.error.startswith("rank 2: 1 of 3 blocks from p do not match their digests")
    assert result.verified == (range(1, 3),)


def test_a_cancelled_request_ends_at_every_rank(scene: Scene) -> None:
    scene.reader.submit(scene.job)
    assert scene.reader.cancel("r") is True
    (result,) = scene.finish()
    assert "cancelled" in result.error and result.verified == ()
    assert not scene.reader.has_reads("r") and not any(other.busy for other in scene.others)
    assert scene.reader.cancel("r") is False


def test_a_peer_that_is_given_up_or_gone_is_so_at_every_rank(scene: Scene) -> None:
    scene.reader.submit(scene.job)
    scene.turn()
    scene.reader.abandon("r", "p")
    (result,) = scene.finish()
    assert "p was given up" in result.error
    scene.reader.disconnect("p")
    scene.finish(max_turns=3)
    assert not any(rank.core._links for rank in scene.ranks)


def test_jobs_of_several_requests_are_told_apart(scene: Scene) -> None:
    first, second = BlockRun(0, 1), BlockRun(1, 2)
    for request_id, run in (("a", first), ("b", second)):
        scene.reader.submit(
            ReadJob(
                request_id=request_id,
                incarnation="p",
                span=scene.source.span(4 * run.first_index, 4 * run.end_index, 1),
                local_block_ids=scene.ranks[0].slots(run),
                into=run,
            )
        )
    results = {}
    while len(results) < 2:
        for result in scene.finish():
            results[result.job.request_id] = result
    assert results["a"].verified == (range(0, 1),)
    assert results["b"].verified == (range(1, 3),)
