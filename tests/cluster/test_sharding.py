"""Who holds what: everything once, in order, whatever the numbers."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from cluster.sharding import HeadSplit, Rank, columns_of, ranks_of, run_of

WORLDS = st.sampled_from([1, 2, 3, 4, 6, 8, 9, 16])
KV_HEADS = st.sampled_from([1, 2, 3, 4, 8])


@st.composite
def splits(draw: st.DrawFn) -> HeadSplit:
    world_size, num_kv_heads = draw(WORLDS), draw(KV_HEADS)
    least = -(-world_size // num_kv_heads)
    group = draw(st.integers(least, least + 8))
    return HeadSplit(
        num_heads=num_kv_heads * group, num_kv_heads=num_kv_heads, world_size=world_size
    )


@given(num_units=st.integers(0, 1000), world_size=st.integers(1, 64))
def test_runs_are_all_units_in_order_and_as_even_as_they_go(
    num_units: int, world_size: int
) -> None:
    runs = [run_of(num_units, rank) for rank in ranks_of(world_size)]
    assert list(chain(*runs)) == list(range(num_units))
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


@given(splits())
def test_every_query_head_is_computed_once_where_its_keys_are(split: HeadSplit) -> None:
    group = split.num_heads // split.num_kv_heads
    computed = [split.heads(index) for index in range(split.world_size)]
    assert list(chain(*computed)) == list(range(split.num_heads))
    for index, heads in enumerate(computed):
        assert len(heads) > 0
        assert {head // group for head in heads} == set(split.kv_heads(index))


@given(splits())
def test_every_kv_head_is_kept_and_its_holders_are_those_that_keep_it(split: HeadSplit) -> None:
    for head in range(split.num_kv_heads):
        keeping = [at for at in range(split.world_size) if head in split.kv_heads(at)]
        assert keeping == list(split.holders(head))
        assert len(keeping) >= 1
        assert len(keeping) == 1 or split.world_size > split.num_kv_heads


@given(splits(), st.integers(0, 63))
def test_who_reads_a_head_finds_it_at_the_rank_that_it_asks(split: HeadSplit, reader: int) -> None:
    for head in range(split.num_kv_heads):
        assert head in split.kv_heads(split.owner(head, reader))


def test_readers_of_one_head_are_spread_over_those_that_keep_it() -> None:
    split = HeadSplit(num_heads=9, num_kv_heads=3, world_size=9)
    assert {split.owner(1, reader) for reader in range(9)} == {3, 4, 5}


def test_smollm2_is_split_over_two_and_three_and_nine() -> None:
    two, three, nine = (
        HeadSplit(num_heads=9, num_kv_heads=3, world_size=world_size) for world_size in (2, 3, 9)
    )
    assert [two.kv_heads(index) for index in range(2)] == [range(1), range(1, 3)]
    assert [two.heads(index) for index in range(2)] == [range(3), range(3, 9)]
    assert [three.heads(index) for index in range(3)] == [range(3), range(3, 6), range(6, 9)]
    assert [nine.kv_heads(index).start for index in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [nine.heads(index) for index in range(9)] == [range(at, at + 1) for at in range(9)]


def test_more_ranks_than_heads_are_refused_with_how_many_would_do() -> None:
    with pytest.raises(ConfigError, match="use at most 9"):
        HeadSplit(num_heads=9, num_kv_heads=3, world_size=10)


def test_columns_are_shared_in_whole_units() -> None:
    parts = [columns_of(1536, 32, rank) for rank in ranks_of(5)]
    assert list(chain(*parts)) == list(range(1536))
    assert all(part.start % 32 == 0 for part in parts)
    with pytest.raises(ConfigError, match="use at most 2"):
        columns_of(64, 32, Rank(0, 3))
    with pytest.raises(ConfigError, match="units of 48"):
        columns_of(64, 48, Rank(0, 1))
