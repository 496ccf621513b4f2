"""Of streams whose rest may be asked for on another connection."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.option_field import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumptionOptions:
    """Of one router: how long, and how much of, what it has told is kept."""

    resume_within_s: float = option(
        60.0,
        "how long the rest of a resumable stream may be asked for once its connection is over; 0: "
        "no stream is resumable",
        low=0,
    )
    max_resumable_answers: int = option(
        4096, "resumable streams that are kept, at most; a tenant has half of them", low=2
    )
    max_resumable_bytes: int = option(
        256 * 1024 * 1024,
        "bytes of all resumable streams; a tenant has half of them, and a stream a 64th part",
        low=1024 * 1024,
    )
