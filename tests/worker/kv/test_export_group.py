"""Several ranks export one pool: one peer, and digests of all heads of the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from cluster.block_span import BlockSpan
from engine.contract.messages import Frame, Prefilled
from engine.process.extension import EngineParts
from kernels.dispatch.block_digest import block_digest
from kvtransfer.loopback import LoopbackNetwork, LoopbackTransport
from kvtransfer.verification import Digest, digest_parts, packed_digests
from tests.kvtransfer.homed_pools import ExportingHomes, GroupKind
from tests.kvtransfer.ranked_pools import marked_cache, pool_of, ranks_of
from worker.kv.export_group import ExportGroup, RankExporter, SharedPool
from worker.kv.kv_exporter import KvExporter

LIMIT_S = 30.0


class Gathering:
    """An all_gather of threads that stand for ranks."""

    def __init__(self, world_size: int) -> None:
        self._rows: dict[int, torch.Tensor] = {}
        self._barrier = threading.Barrier(world_size, timeout=LIMIT_S)

    def of(self, rank: int) -> Callable[[torch.Tensor, Sequence[int]], torch.Tensor]:
        def gather(rows: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
            assert rows.shape[1] == widths[rank]
            self._rows[rank] = rows
            self._barrier.wait()
            whole = torch.cat([self._rows[at] for at in range(len(widths))], dim=1)
            self._barrier.wait()
            return whole

        return gather


class Scene:
    """An exporter whose pool lies at several ranks, each with a thread while it is asked; and its
    line to them."""

    def __init__(
        self,
        num_heads: int,
        world_size: int,
        digests: dict[int, Digest],
        *,
        shares_blocks: bool = False,
        whole_layers: int = 0,
    ) -> None:
        network, cache = LoopbackNetwork(), marked_cache(num_heads, whole_layers=whole_layers)
        (alone,) = ranks_of(num_heads, 1, whole_layers)
        self.whole = pool_of(cache, alone, 16)
        gathering = Gathering(world_size)
        kind = GroupKind(world_size, shares_blocks)
        shares = kind.shares(num_heads, whole_layers)
        if shares_blocks:
            caches = [marked_cache(num_heads, seed=rank) for rank in range(world_size)]
            self.pools = ExportingHomes(caches, 16).pools
        else:
            self.pools = [pool_of(cache, share, 16) for share in shares]
        shared = [
            SharedPool(
                pool=pool,
                shares=shares,
                gather=gathering.of(rank),
                digest=digests.get(rank, block_digest),
            )
            for rank, pool in enumerate(self.pools)
        ]
        transports = [
            LoopbackTransport(pool, f"p{rank}", network=network)
            for rank, pool in enumerate(self.pools)
        ]
        self.others = [RankExporter(shared[r], transports[r]) for r in range(1, world_size)]
        self.greetings = {r: other.greeting for r, other in enumerate(self.others, start=1)}
        self.threads = ThreadPoolExecutor(max(1, world_size - 1))
        self.asked: list[object] = []
        self.exporter = KvExporter(
            EngineParts(
                spec=None,
                kv=self.pools[0].blocks,
                generations=self.pools[0].generations,
                num_homes=self.pools[0].homes.num_homes,
                shares=shares,
            ),
            transports[0],
            block_digest,
            group=ExportGroup(shared[0], self),
        )

    def tell(self, body: bytes) -> None:
        self.asked += [self.threads.submit(other.handle, body) for other in self.others]

    def announced(self, block_ids: list[int], digest_tokens: int = 0) -> BlockSpan:
        frame = Frame(prefilled=[Prefilled("a", BlockSpan(0, block_ids), digest_tokens)])
        self.exporter.enrich(frame)
        for asked in self.asked:
            asked.result(LIMIT_S)
        self.asked.clear()
        (prefilled,) = frame.prefilled
        return prefilled.span


@pytest.mark.parametrize("whole_layers", [0, 3])
@pytest.mark.parametrize("world_size", [1, 2, 3, 9])
@pytest.mark.parametrize("num_heads", [1, 3, 5])
def test_digests_of_all_ranks_are_those_of_one_that_has_every_head(
    num_heads: int, world_size: int, whole_layers: int
) -> None:
    scene = Scene(num_heads, world_size, {}, whole_layers=whole_layers)
    for digest_tokens, parts in ((0, 1), (8, 2)):
        span = scene.announced([5, 2, 7], digest_tokens)
        alone = digest_parts(block_digest, scene.whole.blocks, [5, 2, 7], parts)
        assert span.digests == packed_digests(alone)
        assert span.generations == [105, 102, 107]


def test_the_peer_has_every_rank_with_its_heads_and_the_generations_of_the_conductor() -> None:
    scene = Scene(3, 2, {})
    peer = scene.exporter.peer
    assert [(r.rank, r.first_head, r.num_heads) for r in peer.ranks] == [(0, 0, 1), (1, 1, 2)]
    assert [rank.agent_name for rank in peer.ranks] == ["p0", "p1"]
    assert peer.generations_address == scene.pools[0].generations.data_ptr()


@pytest.mark.parametrize("num_heads", [1, 3])
def test_digests_of_a_block_of_one_rank_are_that_rank_s(num_heads: int) -> None:
    scene = Scene(num_heads, 3, {}, shares_blocks=True)
    homes = scene.pools[0].homes
    for home, pool in enumerate(scene.pools):
        for digest_tokens, parts in ((0, 1), (8, 2)):
            block_ids = [homes.ids_of(home)[at] for at in (5, 2, 7)]
            span = scene.announced(block_ids, digest_tokens)
            alone = digest_parts(block_digest, pool.blocks, [5, 2, 7], parts)
            assert span.digests == packed_digests(alone)
            assert span.generations == [100 + block for block in block_ids]


def test_the_peer_of_ranks_that_share_blocks_has_all_heads_at_each() -> None:
    scene = Scene(3, 2, {}, shares_blocks=True)
    peer = scene.exporter.peer
    assert [(r.rank, r.first_head, r.num_heads) for r in peer.ranks] == [(0, 0, 3), (1, 0, 3)]
    assert peer.homes == scene.pools[1].homes and peer.shares_blocks
    assert peer.num_blocks == len(scene.pools[0].generations) == 2 * peer.blocks_each
    assert peer.generations_address == scene.pools[0].generations.data_ptr()


def test_blocks_of_two_ranks_are_announced_without_digests_and_hold_nobody_up() -> None:
    scene = Scene(3, 2, {}, shares_blocks=True)
    homes = scene.pools[0].homes
    assert scene.announced([0, homes.blocks_each]).digests == b""
    assert scene.announced([0, 1]).digests != b""


def test_a_rank_that_cannot_digest_holds_nobody_up_and_the_blocks_go_without() -> None:
    is_loaded = False

    def fails(pool: torch.Tensor, block_ids: Sequence[int]) -> torch.Tensor:
        if is_loaded:
            raise RuntimeError("no kernel")
        return block_digest(pool, block_ids)

    scene = Scene(3, 3, {1: fails})
    is_loaded = True
    assert scene.announced([1]).digests == b""
    is_loaded = False
    assert scene.announced([1]).digests != b""
