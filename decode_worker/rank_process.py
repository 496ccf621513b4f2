"""A rank of a decode worker's engine: `python -m decode_worker.rank_process`."""

from __future__ import annotations

import torch

from engine.process.rank_main import rank_main
from engine.runner.ranks.extension import RankExtension, RankParts
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.head_share import head_shares
from kvtransfer.local_pool import LocalPool
from kvtransfer.open_transport import open_transport
from kvtransfer.rank_reader import RankReader


def make_rank_reader(parts: RankParts) -> RankExtension:
    """A RankExtensionFactory. Nobody reads this pool, so its generations count nothing."""
    spec, rank = parts.spec, parts.rank
    share = head_shares(spec.card.config, rank.world_size)[rank.index]
    pool = LocalPool(parts.kv, torch.zeros(len(parts.kv), dtype=torch.int64), share)
    block_digest(parts.kv, [0])  # its kernel is made now, not while the first request waits
    transport = open_transport(spec.kv_transport, pool, f"{spec.incarnation}-{rank.index}")
    return RankReader(BlockReader(transport, pool, block_digest))


if __name__ == "__main__":
    rank_main(make_rank_reader)
