"""A part of an engine process: final blocks get generations and digests.

    step -> Prefilled -> generations, digests -> the same frame

Announced with the step that computed them, so that they travel while the next chunk is computed.
The transport is passive here: readers fetch from registered memory without this process's help.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cluster.block_span import BlockSpan
from cluster.kv_peer import KvPeer
from cluster.logs import get_logger
from engine.contract.commands import Command
from engine.contract.messages import Frame, Prefilled
from engine.process.extension import EngineParts
from engine.step.step_health import StepHealth
from kvtransfer.transport import PoolDescription
from kvtransfer.verification import Digest, digest_parts, packed_digests, wait_until_computed
from worker.kv.export_group import ExportGroup

_log = get_logger("worker.exporter")


class KvExporter:
    """An engine Extension; see there. Owns the transport.

    Digests are computed on the engine's thread: 0.2 ms for 32 blocks of SmolLM2 (12 MB, 512 tokens
    that take 300 ms or more to prefill); a thread beside it would deliver them one step later.
    """

    def __init__(
        self,
        parts: EngineParts,
        transport: PoolDescription,
        digest: Digest,
        *,
        group: ExportGroup | None = None,
        wait: Callable[[torch.Tensor], None] = wait_until_computed,
    ) -> None:
        """`wait` returns when the device has computed what the pool is to hold. `group`: the other
        ranks' part of it, where there are any.

        Raises ConfigError when the transport cannot export this pool.
        """
        self._parts = parts
        self._wait = wait
        self._transport = transport
        self._digest, self._group = digest, group
        own = transport.describe()
        self._peer = own if group is None else group.whole(own)
        self._health = StepHealth("prompts in a row had blocks that could not be checksummed")

    @property
    def peer(self) -> KvPeer | None:
        """Where this pool can be read."""
        return self._peer

    @property
    def transport(self) -> str:
        """By what name; the link is chosen by each reader."""
        return f"{self._peer.transport}, exporting {self._peer.ranks[0].memory}"

    @property
    def busy(self) -> bool:
        """Nothing is ever in flight here."""
        return False

    def has_reads(self, request_id: str) -> bool:
        """Nobody writes into this pool."""
        return False

    def handle(self, command: Command) -> bool:
        """Every command is the engine's."""
        return False

    def poll(self) -> list[Command]:
        """Nothing becomes ready for the engine."""
        return []

    def enrich(self, frame: Frame) -> None:
        """Completes the announcements, which leave when the blocks are in memory: a reader does not
        ask this process, nor its device. (With digests that has been waited for already.)

        Raises EngineBroken when the digests of prompt after prompt fail: no reader takes such
        blocks. All chunks of one prompt are one failure. Raises RankLost with another rank.
        """
        if frame.prefilled:
            failures: list[Exception] = []
            frame.prefilled = [self._complete(prefilled, failures) for prefilled in frame.prefilled]
            self._wait(self._parts.kv)
            if len(failures) == len(frame.prefilled):
                names = (hash(prefilled.request_id) for prefilled in frame.prefilled)
                self._health.failed_with(failures[-1], names)
            else:
                self._health.succeeded()

    def close(self) -> None:
        """Ends the transport."""
        self._transport.close()

    def _complete(self, prefilled: Prefilled, failures: list[Exception]) -> Prefilled:
        """Without digests, after an error, the reader refuses the blocks and computes them."""
        first_index, block_ids = prefilled.span.first_index, prefilled.span.block_ids
        generations: list[int] = self._parts.generations[block_ids].tolist()
        try:
            digests = packed_digests(self._digests_of(block_ids, prefilled.digest_tokens))
        except (RuntimeError, ValueError, IndexError) as error:
            _log.exception(
                "blocks could not be checksummed; their reader will compute them itself",
                engine_request=prefilled.request_id,
            )
            failures.append(error)
            digests = b""
        span = BlockSpan(first_index, block_ids, generations, digests)
        return Prefilled(prefilled.request_id, span, prefilled.digest_tokens)

    def _digests_of(self, block_ids: list[int], digest_tokens: int) -> torch.Tensor:
        """Of all heads of the model."""
        kv = self._parts.kv
        parts = kv.shape[4] // digest_tokens if digest_tokens else 1
        if self._group is not None:
            return self._group.digests(block_ids, parts)
        return digest_parts(self._digest, kv, block_ids, parts)
