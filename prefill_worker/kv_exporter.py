"""The prefill worker's part of its engine process: final blocks get generations and digests.

    step -> Prefilled -> export thread (digests) -> Prefilled, complete, in a later frame

The transport is passive here: readers fetch from registered memory without this process's help.
"""

from __future__ import annotations

from cluster.kv_peer import KvPeer
from engine.extension import EngineParts
from engine.messages import Command, Frame, Prefilled
from kvtransfer.block_exporter import BlockExporter, Export, ExportJob
from kvtransfer.local_pool import LocalPool
from kvtransfer.transport import PoolDescription
from kvtransfer.verification import Digest


class KvExporter:
    """An engine Extension; see there. Owns the transport and the exporter's thread."""

    def __init__(self, parts: EngineParts, transport: PoolDescription, digest: Digest) -> None:
        """Raises ConfigError when the transport cannot export this pool."""
        self._transport = transport
        self._peer = transport.describe()
        self._exporter = BlockExporter(LocalPool(parts.kv, parts.generations), digest)

    @property
    def peer(self) -> KvPeer | None:
        """Where this pool can be read."""
        return self._peer

    @property
    def transport(self) -> str:
        """By what name; the link is chosen by each reader."""
        return f"{self._peer.transport}, exporting {self._peer.memory}"

    @property
    def busy(self) -> bool:
        """True while digests are being computed."""
        return self._exporter.busy

    def holds(self, request_id: str) -> bool:
        """Nobody writes into this pool."""
        return False

    def handle(self, command: Command) -> bool:
        """Every command is the engine's."""
        return False

    def poll(self) -> list[Command]:
        """Nothing becomes ready for the engine."""
        return []

    def enrich(self, frame: Frame) -> None:
        """Holds announcements back until they are complete."""
        for prefilled in frame.prefilled:
            self._exporter.submit(
                ExportJob(
                    request_id=prefilled.request_id,
                    first_index=prefilled.first_index,
                    block_ids=tuple(prefilled.block_ids),
                )
            )
        frame.prefilled = [_announcement(export) for export in self._exporter.poll()]

    def close(self) -> None:
        """Ends the thread, then the transport."""
        self._exporter.close()
        self._transport.close()


def _announcement(export: Export) -> Prefilled:
    """Without digests, after an error, the reader refuses the blocks and computes them itself."""
    return Prefilled(
        export.job.request_id,
        export.job.first_index,
        list(export.job.block_ids),
        export.generations,
        export.digests,
    )
