"""The decode worker's engine process: `python -m decode_worker.engine_process`."""

from __future__ import annotations

from decode_worker.kv_intake import KvIntake
from engine.process.extension import EngineParts, Extension
from engine.process.main import engine_main
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.group_reader import GroupReader
from kvtransfer.head_share import head_shares
from kvtransfer.local_pool import LocalPool
from kvtransfer.open_transport import open_transport
from kvtransfer.reader import Reader


def make_intake(parts: EngineParts) -> Extension:
    """An ExtensionFactory. The incarnation names the transfer agent: no process had it before."""
    spec, line = parts.spec, parts.line
    shares = head_shares(spec.card.config, spec.options.tensor_parallel_size)
    pool = LocalPool(parts.kv, parts.generations, shares[0])
    block_digest(parts.kv, [0])  # its kernel is made now, not while the first request waits
    transport = open_transport(spec.kv_transport, pool, spec.incarnation)
    reader: Reader = BlockReader(transport, pool, block_digest)
    if line is not None:
        reader = GroupReader(reader, line, len(shares))
    return KvIntake(parts, reader, spec.kv_transport)


if __name__ == "__main__":
    engine_main(make_intake, rank_module="decode_worker.rank_process")
