"""What a rank's process is told before it starts: plain values, whoever starts it."""

from __future__ import annotations

import msgspec

from ranks.channels import ChannelKeys
from ranks.collectives.rendezvous import Rendezvous

CONDUCTOR = 0
"""The rank of the process that plans the steps; it starts the others."""


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
    """Without its descriptor: that comes by `descriptors_path`."""
    reports_address: str
    """ZMQ endpoint of the conductor's PULL socket; reports.py says what goes there."""
    descriptors_path: str = ""
    """Unix socket where a rank of the conductor's host fetches its descriptors (descriptors.py);
    empty where the group meets over TCP."""
    is_beside_conductor: bool = True
    """On its host, where its paths mean the same."""
    num_beside: int = 1
    """Ranks on this one's host, itself among them: they share its cores and its memory."""
    free_bytes: int | None = None
    """Of the host's memory before the first of its ranks began to load; None where the ranks begin
    together."""
    plans_address: str = ""
    """ZMQ endpoint of the plans of a group that meets over TCP; empty in shared memory."""
    beats_address: str = ""
    """ZMQ endpoint where such a rank says that it lives."""
    keys: ChannelKeys | None = None
    """For the three addresses; None where they are files of the user's alone."""

    def pack(self) -> bytes:
        """Msgpack, for standard input or an actor's argument."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def unpack(packed: bytes) -> RankLaunch:
        """The inverse of `pack`; raises msgspec.ValidationError on anything else."""
        return msgspec.msgpack.decode(packed, type=RankLaunch)
