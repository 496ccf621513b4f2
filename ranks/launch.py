"""What a rank's process is told before it starts: plain values, whoever starts it."""

from __future__ import annotations

import msgspec

from ranks.channels import ChannelKeys
from ranks.collectives.rendezvous import Rendezvous

CONDUCTOR = 0
"""The rank of the process that plans the steps; it starts the others."""


class SharedWay(msgspec.Struct, frozen=True, tag=True):
    """In shared memory, on the conductor's host."""

    descriptors_path: str
    """Unix socket where the rank fetches what the group shares (descriptors.py)."""


class TcpWay(msgspec.Struct, frozen=True, tag=True):
    """Over TCP, or between sockets of one host that has no memory to share."""

    plans_address: str
    """ZMQ endpoint of the plans."""
    beats_address: str
    """ZMQ endpoint where the rank says that it lives."""


class RankLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's, of one generation. Its addresses are good for that generation alone."""

    spec: bytes
    """Opaque here: what the engine tells its ranks of the model, packed."""
    rank: int
    """0 is the conductor, which launches the others and keeps its own."""
    world_size: int
    generation: int
    node: str
    """As in the RankPlaces."""
    rendezvous: Rendezvous
    """Without its descriptor: that comes by the SharedWay."""
    reports_address: str
    """ZMQ endpoint of the conductor's PULL socket; reports.py says what goes there."""
    way: SharedWay | TcpWay
    """By which it comes to the group's plans."""
    is_beside_conductor: bool = True
    """On its host, where its paths mean the same."""
    num_beside: int = 1
    """Ranks on this one's host, itself among them: they share its cores and its memory."""
    free_bytes: int | None = None
    """Of the host's memory before the first of its ranks began to load; None where the ranks begin
    together."""
    keys: ChannelKeys | None = None
    """For all its addresses; None where they are files of the user's alone."""

    def pack(self) -> bytes:
        """Msgpack, for standard input or an actor's argument."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def unpack(packed: bytes) -> RankLaunch:
        """The inverse of `pack`; raises msgspec.ValidationError on anything else."""
        return msgspec.msgpack.decode(packed, type=RankLaunch)
