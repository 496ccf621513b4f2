"""Groups in shared memory, as tests want them."""

from __future__ import annotations

import mmap

from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace, Rendezvous
from ranks.collectives.segment import SharedSegment


def narrow_place(num_ranks: int, generation: int = 7) -> MeetingPlace:
    """With trays of one page, of which sums by parts begin at a quarter."""
    segment = SharedSegment.create(
        num_ranks, generation, tray_bytes=mmap.PAGESIZE, direct_bytes=mmap.PAGESIZE // 4
    )
    rendezvous = Rendezvous(
        kind=CollectiveKind.SHARED_MEMORY,
        generation=generation,
        world_size=num_ranks,
        segment_fd=segment.fd,
    )
    return MeetingPlace(rendezvous, segment, None)
