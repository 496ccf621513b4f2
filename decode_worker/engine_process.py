"""The decode worker's engine process: `python -m decode_worker.engine_process`."""

from __future__ import annotations

from decode_worker.kv_intake import KvIntake
from engine.process.extension import EngineParts, Extension
from engine.process.main import engine_main
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.local_pool import LocalPool
from kvtransfer.open_transport import open_transport


def make_intake(parts: EngineParts) -> Extension:
    """An ExtensionFactory. The incarnation names the transfer agent: no process had it before."""
    pool = LocalPool(parts.kv, parts.generations)
    kind = parts.spec.kv_transport
    block_digest(parts.kv, [0])  # its kernel is made now, not while the first request waits
    transport = open_transport(kind, pool, parts.spec.incarnation)
    return KvIntake(parts, BlockReader(transport, pool, block_digest), kind)


if __name__ == "__main__":
    engine_main(make_intake)
