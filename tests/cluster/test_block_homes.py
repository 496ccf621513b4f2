from cluster.block_homes import BlockHomes


def test_each_block_has_one_home_and_one_place_there() -> None:
    homes = BlockHomes(num_homes=3, blocks_each=5)

    found = [(homes.home_of(block), homes.local(block)) for block in range(homes.num_blocks)]

    assert found == [(rank, place) for rank in range(3) for place in range(5)]


def test_the_blocks_of_all_homes_are_all_blocks_in_turn() -> None:
    homes = BlockHomes(num_homes=4, blocks_each=7)

    assert [block for rank in range(4) for block in homes.ids_of(rank)] == list(range(28))
    assert all(homes.home_of(block) == rank for rank in range(4) for block in homes.ids_of(rank))


def test_where_heads_are_shared_every_block_keeps_its_id() -> None:
    homes = BlockHomes(num_homes=1, blocks_each=9)

    assert [homes.local(block) for block in homes.ids_of(0)] == list(range(9))
    assert {homes.home_of(block) for block in range(9)} == {0}
