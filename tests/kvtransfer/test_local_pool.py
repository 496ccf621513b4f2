"""The local end of a transfer, and the transports by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cluster.block_homes import BlockHomes
from cluster.block_span import BlockSpan
from cluster.errors import ConfigError, PairingMismatch, TransferFailed
from kernels.dispatch.block_digest import block_digest
from kvtransfer.local_pool import LocalPool, boot_id, check_block_ids
from kvtransfer.loopback import LoopbackTransport
from kvtransfer.nixl_transport import NixlTransport
from kvtransfer.open_transport import open_transport
from kvtransfer.read_job import runs_of
from kvtransfer.verification import announced_digests, digest_bytes, own_digests
from tests.kvtransfer.kv_blocks import small_pool


def test_a_pool_knows_its_sizes() -> None:
    pool = LocalPool(torch.zeros(5, 2, 3, dtype=torch.bfloat16), torch.zeros(5, dtype=torch.int64))
    assert (pool.num_blocks, pool.block_bytes, pool.memory, pool.device_id) == (5, 12, "DRAM", 0)


@pytest.mark.parametrize(
    "blocks", [torch.zeros(4, 6)[:, ::2], torch.zeros(8), torch.zeros(0, 4)], ids=str
)
def test_a_pool_that_cannot_be_registered_is_refused(blocks: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match="cannot be registered"):
        LocalPool(blocks, torch.zeros(len(blocks), dtype=torch.int64))


@pytest.mark.parametrize(
    "generations", [torch.zeros(4, dtype=torch.int32), torch.zeros(3, dtype=torch.int64)]
)
def test_generations_that_do_not_fit_the_pool_are_refused(generations: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match=r"needed: int64 \[4\]"):
        LocalPool(torch.zeros(4, 2), generations)


def test_the_generations_of_a_group_are_of_all_its_blocks() -> None:
    counted = torch.zeros(12, dtype=torch.int64)
    pool = LocalPool(torch.zeros(4, 2), counted, group=BlockHomes(3, 4))
    assert pool.homes.num_blocks == 12 and pool.num_blocks == 4
    with pytest.raises(ConfigError, match=r"needed: int64 \[12\]"):
        LocalPool(torch.zeros(4, 2), counted[:4], group=BlockHomes(3, 4))
    with pytest.raises(ConfigError, match="a KV pool has 4 blocks, and each rank 5"):
        LocalPool(torch.zeros(4, 2), counted, group=BlockHomes(3, 5))


def test_ranks_that_share_blocks_and_have_unequal_heads_are_refused() -> None:
    pool = LocalPool(torch.zeros(2, 1, 2, 2, 8, 4), torch.zeros(2, dtype=torch.int64))
    peer = LoopbackTransport(pool, "l").describe()
    (rank,) = peer.ranks
    half = replace(rank, rank=1, num_heads=1, block_bytes=rank.block_bytes // 2)
    heads = replace(peer, ranks=(rank, half))
    assert pool.check_peer(heads, "loopback").homes is None
    with pytest.raises(PairingMismatch, match="not all of them have the same KV heads"):
        pool.check_peer(replace(heads, shares_blocks=True), "loopback")
    alike = replace(peer, ranks=(rank, replace(rank, rank=1)), shares_blocks=True)
    assert pool.check_peer(alike, "loopback").homes == BlockHomes(2, 2)


def test_block_ids_must_be_pairs_within_both_pools() -> None:
    check_block_ids([0, 7], [3, 1], num_remote=8, num_local=4)
    for remote, local in (([], []), ([1], []), ([8], [0]), ([-1], [0]), ([0], [4])):
        with pytest.raises(TransferFailed):
            check_block_ids(remote, local, num_remote=8, num_local=4)


def test_transports_are_opened_by_name() -> None:
    pool = small_pool(2)
    assert isinstance(open_transport("nixl", pool, "n"), NixlTransport)
    loopback = open_transport("loopback", pool, "l")
    assert isinstance(loopback, LoopbackTransport)
    with pytest.raises(ConfigError, match="kv_transport is 'smoke'; choose nixl or loopback"):
        open_transport("smoke", pool, "s")


def test_pools_over_different_transports_do_not_pair() -> None:
    pool = small_pool(2)
    peer = LoopbackTransport(pool, "l").describe()
    assert peer.host == boot_id() and peer.num_blocks == 2
    with pytest.raises(PairingMismatch, match="transport is 'loopback' there and 'nixl' here"):
        pool.check_peer(peer, "nixl")


@pytest.mark.parametrize("num_blocks", [0, 2**32 - 1])
def test_a_pool_of_impossible_size_is_refused(num_blocks: int) -> None:
    pool = small_pool(2)
    peer = replace(LoopbackTransport(pool, "l").describe(), blocks_each=num_blocks)
    with pytest.raises(PairingMismatch, match=f"a KV pool of {num_blocks} blocks"):
        pool.check_peer(peer, "loopback")


def test_positions_become_runs_of_the_sequence() -> None:
    assert runs_of(10, {3, 0, 1, 5}) == (range(10, 12), range(13, 14), range(15, 16))
    assert runs_of(0, []) == ()


def test_every_flipped_bit_of_a_block_changes_the_digest_of_its_head_alone() -> None:
    pool = small_pool(1, seed=4)
    before = block_digest(pool.blocks, [0])
    span = BlockSpan(0, [0], [100], digest_bytes(block_digest, pool.blocks, [0]))
    announced = announced_digests(span, pool)
    for layer, side, head, token, dim in ((0, 0, 0, 0, 0), (1, 1, 2, 3, 7), (0, 1, 1, 2, 5)):
        cell = pool.blocks.view(torch.int16)[0, layer, side, head, token]
        cell[dim] ^= 1
        changed = block_digest(pool.blocks, [0]) != before
        assert changed.nonzero().tolist() == [[0, layer, side, head]]
        found = own_digests(block_digest, pool, [0]) != announced
        assert np.argwhere(found).tolist() == [[0, 2 * layer + side, head, 0]]
        cell[dim] ^= 1
    assert (own_digests(block_digest, pool, [0]) == announced).all()
