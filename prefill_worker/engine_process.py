"""The prefill worker's engine process: `python -m prefill_worker.engine_process`."""

from __future__ import annotations

from engine.process.extension import EngineParts, Extension
from engine.process.main import engine_main
from kernels.dispatch.block_digest import block_digest
from kvtransfer.local_pool import LocalPool
from kvtransfer.open_transport import open_transport
from prefill_worker.kv_exporter import KvExporter


def make_exporter(parts: EngineParts) -> Extension:
    """An ExtensionFactory. The incarnation names the transfer agent: no process had it before."""
    pool = LocalPool(parts.kv, parts.generations)
    transport = open_transport(parts.spec.kv_transport, pool, parts.spec.incarnation)
    return KvExporter(parts, transport, block_digest)


if __name__ == "__main__":
    engine_main(make_exporter, rank_module="prefill_worker.rank_process")
