"""The portion of a replica that a rank of a group loads, whether it is the conductor or not."""

from __future__ import annotations

from cluster.sharding import Rank
from engine.contract.expert_exchange import rows_are_exchanged
from engine.contract.spec import EngineSpec
from engine.runner.portion import LoadedTogether, Portion
from kernels.tape.collective import Collective


def portion_of(
    spec: EngineSpec,
    rank: int,
    collective: Collective,
    together: LoadedTogether,
    *,
    num_beside: int,
    free_bytes: int | None,
) -> Portion:
    """`num_beside` and `free_bytes` as in RankLaunch."""
    return Portion(
        rank=Rank(rank, spec.options.tensor_parallel_size),
        expert_parallel_size=spec.options.expert_parallel_size,
        exchanges_rows=rows_are_exchanged(spec),
        collective=collective,
        together=together,
        num_beside=num_beside,
        free_bytes=free_bytes,
    )
