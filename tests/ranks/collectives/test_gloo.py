"""Ranks that meet over TCP: the same sums and bits as in shared memory, the same errors."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psutil
import pytest
import torch

from cluster.errors import ConfigError, RankLost, WrongGeneration
from cluster.membership.reach import is_loopback
from cluster.sharding import Rank
from ranks.collectives.gloo import GlooCollective
from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace, join
from ranks.collectives.store import absent, claim, join_store, open_store
from tests.ranks.collectives import every_operation, rank_work
from tests.ranks.collectives.every_operation import DTYPES
from tests.ranks.collectives.rank_processes import LIMIT_S, RankProcesses, rank_processes

SHORT_S = 2.0
ONE_ROW = partial(rank_work.reduced, shape=(1, 576), dtype=torch.float32)


@pytest.fixture(scope="module", params=[2, 3])
def group(request: pytest.FixtureRequest) -> Iterator[RankProcesses]:
    with rank_processes(
        MeetingPlace.open(CollectiveKind.GLOO, request.param, generation=7)
    ) as processes:
        yield processes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 576), (512, 576), (1, 1), (1023, 77)], ids=str)
def test_all_ranks_get_the_sum_in_the_order_of_the_ranks(
    group: RankProcesses, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    every_operation.check_sums(group, shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_and_columns_go_where_they_are_for(group: RankProcesses, dtype: torch.dtype) -> None:
    every_operation.check_gathers(group, 40, dtype)
    every_operation.check_scattered_sums(group, dtype)
    every_operation.check_swaps(group, dtype)
    every_operation.check_broadcasts(group, dtype)


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_rank_that_goes_is_named_by_all_others_and_ends_the_group(end: str) -> None:
    place = MeetingPlace.open(CollectiveKind.GLOO, 3, generation=5)
    with rank_processes(place, SHORT_S) as group:
        group.run(partial(rank_work.met, deadline_s=LIMIT_S))
        group.ranks[1].kill() if end == "killed" else group.ranks[1].stop()
        left = (group.ranks[0], group.ranks[2])
        for _ in range(2):
            for rank in left:
                rank.send(ONE_ROW)
            errors = [rank.outcome() for rank in left]
            assert all(isinstance(error, RankLost) for error in errors)
            assert [error.ranks for error in errors] == [(1,), (1,)]


def test_a_call_for_one_whose_connection_stands_ends_when_the_group_is_given_up() -> None:
    """As after a partition: nobody can kill it, and TCP says nothing for minutes."""
    place = MeetingPlace.open(CollectiveKind.GLOO, 2, generation=8)
    with ThreadPoolExecutor(2) as pool:
        own, other = pool.map(lambda at: join_at(place, at), (0, 1))
        began_s = time.monotonic()
        assert own.in_call_since_s is None
        waiting = pool.submit(own.all_reduce, torch.ones(1, 576))
        while (since_s := own.in_call_since_s) is None and not waiting.done():
            threading.Event().wait(0.001)
        assert since_s is not None and since_s >= began_s
        own.abort()
        with pytest.raises(RankLost, match="generation 8 of this group was given up"):
            waiting.result(LIMIT_S)
        assert own.in_call_since_s is None
        with pytest.raises(RankLost, match="was given up"):
            own.meet(LIMIT_S)
        own.close()
        assert time.monotonic() - began_s < LIMIT_S / 2
    other.close()
    place.close()


def test_a_rank_of_another_generation_is_refused() -> None:
    place = MeetingPlace.open(CollectiveKind.GLOO, 2, generation=8)
    meeting = place.rendezvous
    with pytest.raises(WrongGeneration, match="generation 7; .* generation 8"):
        join_store(meeting.store_host, meeting.store_port, 7, timeout_s=LIMIT_S)


def test_a_rank_is_one_process() -> None:
    store = open_store("127.0.0.1", 4)
    claim(store, 1, 4)
    with pytest.raises(ConfigError, match="rank 1 of generation 4 is another process"):
        GlooCollective(store, Rank(1, 2), 4, address="127.0.0.1", deadline_s=SHORT_S)


def test_where_no_store_answers_the_address_is_named() -> None:
    place = MeetingPlace.open(CollectiveKind.GLOO, 2, generation=8)
    meeting = place.rendezvous
    place.close()
    with pytest.raises(RankLost, match=f"127.0.0.1:{meeting.store_port}"):
        join_store(meeting.store_host, meeting.store_port, 8, timeout_s=0.2)


def test_a_rank_whose_others_do_not_come_says_who() -> None:
    place = MeetingPlace.open(CollectiveKind.GLOO, 2, generation=8)
    with pytest.raises(RankLost) as caught:
        join(place.rendezvous, 0, deadline_s=0.5)
    assert caught.value.ranks == (1,)


def test_ranks_and_their_store_listen_at_the_address_that_was_given_and_nowhere_else() -> None:
    """A machine's own name often stands for 127.0.1.1, which no other host can reach."""
    address = outer_address()
    here = psutil.Process()
    before = listening_at(here)
    place = MeetingPlace.open(CollectiveKind.GLOO, 2, generation=9, address=address)
    with ThreadPoolExecutor(2) as pool:
        ranks = list(pool.map(lambda at: join_at(place, at), (0, 1)))
    assert {host for host, _ in listening_at(here) - before} == {address}
    for rank in ranks:
        rank.close()
    place.close()


def join_at(place: MeetingPlace, rank: int) -> GroupCollective:
    return join(place.rendezvous, rank, deadline_s=LIMIT_S)


def outer_address() -> str:
    """Of this machine, where the machine's own name does not lead."""
    found = [a for some in psutil.net_if_addrs().values() for a in some]
    outer = [a.address for a in found if a.family == socket.AF_INET and not is_loopback(a.address)]
    if not outer:
        pytest.skip("this machine has no address but loopback")
    return outer[0]


def listening_at(process: psutil.Process) -> set[tuple[str, int]]:
    found = process.net_connections(kind="inet")
    return {(c.laddr.ip, c.laddr.port) for c in found if c.status == psutil.CONN_LISTEN}


def test_who_is_missing_is_known_after_one_grace_however_many_are() -> None:
    store = open_store("127.0.0.1", 4)
    began_s = time.monotonic()
    assert absent(store, 0, 64, grace_s=0.5) == tuple(range(1, 64))
    assert time.monotonic() - began_s < 0.5 * 63


def test_a_host_of_ipv6_alone_is_told_of_as_the_ranks_and_not_as_a_router() -> None:
    with pytest.raises(ConfigError, match="ranks meet over IPv4") as refused:
        open_store("::1", generation=1)
    assert refused.value.param is None
