"""What a worker plugs into its engine's process: the KV exporter or the KV intake.

    loop:  receive -> extension.handle -> engine.apply
           extension.poll -> engine.apply
           engine.step -> extension.enrich -> send

Everything is called from the engine's one thread and must return at once, without raising: no
waiting on a network. An exception ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from cluster.block_homes import BlockHomes
from cluster.kv_peer import KvPeer
from cluster.models.head_share import HeadShare
from engine.contract.commands import Command
from engine.contract.messages import Frame
from engine.contract.spec import EngineSpec
from ranks.line import RankLine


class PoolAccess(Protocol):
    """What the process and the engine ask about the pool that is shared with other workers."""

    @property
    def peer(self) -> KvPeer | None:
        """Where this process's pool can be read, for Ready; None when it cannot export."""

    @property
    def transport(self) -> str:
        """The transport in use, in words; may change with the first transfer."""

    def has_reads(self, request_id: str) -> bool:
        """True while reads into that request's blocks are in flight.

        The engine then keeps the blocks out of use, even when the request has ended (cancelled, or
        past its deadline), and delays PrefillLocally: so that a late read can hurt nobody.
        """

    def close(self) -> None:
        """The process ends. Called once."""


class TurnPart(Protocol):
    """What the loop asks in every turn."""

    @property
    def busy(self) -> bool:
        """True while something is in flight: the loop polls instead of sleeping."""

    def handle(self, command: Command) -> bool:
        """Sees every command first. True: it was for the extension alone (Fetch, Connect...).

        False passes it on to the engine. Cancel should be seen, used to abort reads, and passed on.
        """

    def poll(self) -> list[Command]:
        """Commands for the engine that became ready, such as Deliver. Once per turn of the loop."""

    def enrich(self, frame: Frame) -> None:
        """Completes a frame before it is sent: generations and digests, Fetched, the transport."""


class Extension(PoolAccess, TurnPart, Protocol):
    """The glue between an engine and the transfer of KV blocks."""


def receives_nothing(request_id: str) -> list[int] | None:
    """The answer of an engine that only exports."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What an extension may touch. The tensors live as long as the process."""

    spec: EngineSpec
    kv: torch.Tensor
    """[blocks of one home, num_layers, num_planes, num_kv_heads, block_size, row_width],
    contiguous."""
    generations: torch.Tensor  # int64 [blocks of all homes], in host memory
    shares: Sequence[HeadShare]
    """Of the model's KV heads, of all ranks in order: `kv` has the first."""
    num_homes: int
    """See Replica."""
    receiving_blocks: Callable[[str], list[int] | None] = receives_nothing
    """Request id -> the slots of its prompt blocks, index 0 first, that may be written now.

    None: it receives nothing (any more). To be asked before every read is started: a Fetch may meet
    a request that has just ended, and its slots may be another's.
    """
    line: RankLine | None = None
    """To the ranks that hold the other heads of every block, or other blocks; None: all are in
    `kv`."""

    @property
    def homes(self) -> BlockHomes:
        """Of all block ids that the engine knows."""
        return BlockHomes(self.num_homes, len(self.kv))


ExtensionFactory = Callable[[EngineParts], Extension]


class NoExtension:
    """For an engine that neither exports nor receives."""

    peer: KvPeer | None = None
    transport = ""
    busy = False

    def has_reads(self, request_id: str) -> bool:
        """Nothing is ever in flight."""
        return False

    def handle(self, command: Command) -> bool:
        """Every command is the engine's."""
        return False

    def poll(self) -> list[Command]:
        """Nothing becomes ready."""
        return []

    def enrich(self, frame: Frame) -> None:
        """Nothing to add."""

    def close(self) -> None:
        """Nothing to close."""


def no_extension(parts: EngineParts) -> Extension:
    """An ExtensionFactory."""
    return NoExtension()
