"""Which heads a rank's pool holds: said alike to the fleet, to its peers, and by its size."""

from __future__ import annotations

import pytest

from cluster.models.card import DecoderConfig
from cluster.models.head_share import head_shares
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank
from tests.cluster.models.configs import DEEPSEEK_V3, LLAMA_3_70B, SMOLLM2


@pytest.mark.parametrize("config", [DEEPSEEK_V3, LLAMA_3_70B, SMOLLM2])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_rank_says_the_heads_that_its_pool_has(config: DecoderConfig, size: int) -> None:
    for share in head_shares(config, size, num_homes=1):
        split = ModelSplit(config=config, rank=Rank(share.rank, size))
        assert share.heads == split.pool_heads
        assert len(split.pool_heads) == split.kv_shape.num_kv_heads


def test_every_rank_of_a_latent_holds_one_head_however_many_are_expanded_there() -> None:
    split = ModelSplit(config=DEEPSEEK_V3, rank=Rank(1, 2))
    assert (split.pool_heads, len(split.kv_heads)) == (range(1), 64)


@pytest.mark.parametrize("config", [DEEPSEEK_V3, LLAMA_3_70B])
def test_every_rank_has_all_heads_of_blocks_that_it_alone_backs(
    config: DecoderConfig,
) -> None:
    num_heads = config.kv_shape.num_kv_heads
    shares = head_shares(config, 100, num_homes=100)
    assert [share.rank for share in shares] == list(range(100))
    assert {share.heads for share in shares} == {range(num_heads)}
    assert {share.num_heads for share in shares} == {num_heads}
