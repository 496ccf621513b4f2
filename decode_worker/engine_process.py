"""The decode worker's engine process: `python -m decode_worker.engine_process`."""

from __future__ import annotations

from cluster.errors import PairingMismatch
from cluster.kv_peer import KvPeer
from decode_worker.kv_intake import KvIntake
from engine.process.extension import EngineParts, Extension
from engine.process.main import engine_main
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.local_pool import LocalPool
from kvtransfer.open_transport import open_transport
from kvtransfer.resharding import Resharding


class PartOfPool(LocalPool):
    """The conductor's heads; those of the other ranks nobody reads yet."""

    def check_peer(self, peer: KvPeer, transport: str) -> Resharding:
        """Raises PairingMismatch: prompts are computed here."""
        raise PairingMismatch(
            "a decode worker of several ranks reads no KV of prefill workers yet, and computes its "
            "prompts itself; start it with --tensor-parallel-size 1, or serve with --prefill 0"
        )


def make_intake(parts: EngineParts) -> Extension:
    """An ExtensionFactory. The incarnation names the transfer agent: no process had it before."""
    pool = LocalPool(parts.kv, parts.generations)
    if parts.line is not None:
        pool = PartOfPool(parts.kv, parts.generations)
    kind = parts.spec.kv_transport
    block_digest(parts.kv, [0])  # its kernel is made now, not while the first request waits
    transport = open_transport(kind, pool, parts.spec.incarnation)
    return KvIntake(parts, BlockReader(transport, pool, block_digest), kind)


if __name__ == "__main__":
    engine_main(make_intake, rank_module="decode_worker.rank_process")
