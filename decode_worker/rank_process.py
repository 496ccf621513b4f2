"""A rank of a decode worker's engine: `python -m decode_worker.rank_process`."""

from __future__ import annotations

from engine.process.rank_main import rank_main
from engine.runner.ranks.extension import RankParts
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.open_pool import open_pool
from kvtransfer.rank_reader import RankReader
from ranks.line import RankExtension


def make_rank_reader(parts: RankParts) -> RankExtension:
    """A RankExtensionFactory."""
    share = parts.shares[parts.rank.index]
    pool = open_pool(parts.spec.kv_transport, parts.agent_name, parts.kv, share)
    return RankReader(BlockReader(pool.transport, pool.local, block_digest))


if __name__ == "__main__":
    rank_main(make_rank_reader)
