"""A rank of a prefill worker's engine: `python -m prefill_worker.rank_process`."""

from __future__ import annotations

import torch

from engine.process.rank_main import rank_main
from engine.runner.ranks.extension import RankExtension, RankParts
from kernels.dispatch.block_digest import block_digest
from kvtransfer.head_share import head_shares
from kvtransfer.local_pool import LocalPool
from kvtransfer.open_transport import open_transport
from prefill_worker.export_group import RankExporter, SharedPool


def make_rank_exporter(parts: RankParts) -> RankExtension:
    """A RankExtensionFactory. Generations are the conductor's: nobody reads this rank's."""
    spec, rank = parts.spec, parts.rank
    shares = head_shares(spec.card.config, rank.world_size)
    generations = torch.zeros(len(parts.kv), dtype=torch.int64)
    pool = LocalPool(parts.kv, generations, shares[rank.index])
    transport = open_transport(spec.kv_transport, pool, f"{spec.incarnation}-{rank.index}")
    shared = SharedPool(pool=pool, shares=shares, gather=parts.gather, digest=block_digest)
    return RankExporter(shared, transport)


if __name__ == "__main__":
    rank_main(make_rank_exporter)
