"""A rank of a prefill worker's engine: `python -m prefill_worker.rank_process`."""

from __future__ import annotations

from engine.process.rank_main import rank_main
from engine.runner.ranks.extension import RankParts
from kernels.dispatch.block_digest import block_digest
from kvtransfer.open_pool import open_pool
from prefill_worker.export_group import RankExporter, SharedPool
from ranks.line import RankExtension


def make_rank_exporter(parts: RankParts) -> RankExtension:
    """A RankExtensionFactory."""
    spec, shares = parts.spec, parts.shares
    share = shares[parts.rank.index]
    pool = open_pool(spec.kv_transport, parts.agent_name, parts.kv, share, homes=parts.homes)
    shared = SharedPool(pool=pool.local, shares=shares, gather=parts.gather, digest=block_digest)
    return RankExporter(shared, pool.transport)


if __name__ == "__main__":
    rank_main(make_rank_exporter)
