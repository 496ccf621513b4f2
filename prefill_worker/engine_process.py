"""The prefill worker's engine process: `python -m prefill_worker.engine_process`."""

from __future__ import annotations

from engine.process.extension import EngineParts, Extension
from engine.process.main import engine_main
from kernels.dispatch.block_digest import block_digest
from kvtransfer.open_pool import open_pool
from prefill_worker.export_group import ExportGroup, SharedPool
from prefill_worker.kv_exporter import KvExporter
from ranks.launch import CONDUCTOR


def make_exporter(parts: EngineParts) -> Extension:
    """An ExtensionFactory. The incarnation names the transfer agent: no process had it before."""
    spec, line, shares = parts.spec, parts.line, parts.shares
    pool = open_pool(
        spec.kv_transport,
        spec.incarnation,
        parts.kv,
        shares[CONDUCTOR],
        generations=parts.generations,
        homes=parts.homes,
    )
    if line is None:
        return KvExporter(parts, pool.transport, block_digest)
    shared = SharedPool(pool=pool.local, shares=shares, gather=line.gather, digest=block_digest)
    return KvExporter(parts, pool.transport, block_digest, group=ExportGroup(shared, line))


if __name__ == "__main__":
    engine_main(make_exporter, rank_module="prefill_worker.rank_process")
