"""On which cores an engine's masks are made: those that its kernels leave, or beside them."""

from __future__ import annotations

from cluster.deadline import Clock
from cluster.process.own_cores import available_cores
from engine.runner.model_runner import Replica
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.masks import MaskMaker
from engine.step.masking import Masking
from engine.step.requests.table import RequestTable
from kernels.cpu.team import TEAM


def masking_of(
    table: RequestTable,
    replica: Replica,
    grammars: GrammarCompiler | None,
    *,
    clock: Clock,
    looks_for_forced: bool,
) -> Masking:
    """For grammars that are compiled there; None: there are none. See Masking; to be closed. The
    clock may be asked by the threads of masks, too."""
    if grammars is None:
        return Masking(table, None, clock=clock)
    busy = TEAM.num_threads if replica.kv.device.type == "cpu" else 1
    spare, ends = available_cores() - busy, frozenset(replica.eos_token_ids)
    maker = MaskMaker(
        replica.vocab_size,
        grammars.meter,
        ends=ends,
        clock=clock,
        num_threads=max(1, spare),
    )
    return Masking(
        table,
        maker,
        ends=ends,
        clock=clock,
        looks_for_forced=looks_for_forced,
        has_spare_cores=spare > 0,
    )
