"""Of rolling updates, in which workers of two pairings are there at once."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.option_field import option


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOptions:
    """Of one router: which workers are to be ready."""

    max_pool_skew: float = option(
        0.25,
        "share by which prefill or decode workers may be ahead of the others in a rolling update "
        "to another pairing: a new worker beyond it is not ready yet; half a worker of each role, "
        "where that is more; 1: any",
        low=0,
        high=1,
    )
