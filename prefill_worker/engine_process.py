"""The prefill worker's engine process: `python -m prefill_worker.engine_process`."""

from __future__ import annotations

from engine.process.extension import EngineParts, Extension
from engine.process.main import engine_main
from kernels.dispatch.block_digest import block_digest
from kvtransfer.head_share import head_shares
from kvtransfer.local_pool import LocalPool
from kvtransfer.open_transport import open_transport
from prefill_worker.export_group import ExportGroup, SharedPool
from prefill_worker.kv_exporter import KvExporter


def make_exporter(parts: EngineParts) -> Extension:
    """An ExtensionFactory. The incarnation names the transfer agent: no process had it before."""
    spec, line = parts.spec, parts.line
    shares = head_shares(spec.card.config, spec.options.tensor_parallel_size)
    pool = LocalPool(parts.kv, parts.generations, shares[0])
    transport = open_transport(spec.kv_transport, pool, spec.incarnation)
    if line is None:
        return KvExporter(parts, transport, block_digest)
    shared = SharedPool(pool=pool, shares=shares, gather=line.gather, digest=block_digest)
    others = [line.greetings[rank] for rank in sorted(line.greetings)]
    group = ExportGroup(shared, others, line.tell)
    return KvExporter(parts, transport, block_digest, group=group)


if __name__ == "__main__":
    engine_main(make_exporter, rank_module="prefill_worker.rank_process")
