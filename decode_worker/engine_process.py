"""The decode worker's engine process: `python -m decode_worker.engine_process`."""

from __future__ import annotations

from decode_worker.kv_intake import KvIntake
from engine.process.extension import EngineParts, Extension
from engine.process.main import engine_main
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.group_reader import GroupReader
from kvtransfer.open_pool import open_pool
from kvtransfer.reader import Reader
from ranks.launch import CONDUCTOR


def make_intake(parts: EngineParts) -> Extension:
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
    reader: Reader = BlockReader(pool.transport, pool.local, block_digest)
    if line is not None:
        reader = GroupReader(reader, line, len(shares), homes=pool.local.homes)
    return KvIntake(parts, reader, spec.kv_transport)


if __name__ == "__main__":
    engine_main(make_intake, rank_module="decode_worker.rank_process")
