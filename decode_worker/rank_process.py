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
    share, kind = parts.shares[parts.rank.index], parts.spec.kv_transport
    pool = open_pool(kind, parts.agent_name, parts.kv, share, homes=parts.homes)
    reader = BlockReader(pool.transport, pool.local, block_digest)
    return RankReader(reader, parts.rank.index)


if __name__ == "__main__":
    rank_main(make_rank_reader)
