"""What one rank of a group loads, whether it is the conductor or not."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.models.group_split import sharing_of
from cluster.rank_facts import RankFacts
from cluster.sharding import Rank
from engine.contract.spec import EngineSpec
from engine.model.load_phases import PhaseProgress
from engine.runner.model_runner import PartRunner
from engine.runner.portion import LoadedTogether, Portion
from engine.runner.ranks.loaded_facts import loaded_facts
from engine.runner.ranks.own_sequences import OwnSequences
from engine.runner.replica import LoadedPart, load_part, memory_errors, runner_of
from engine.runner.warm_up import warm_up_experts
from kernels.tape.collective import ExpertCollective
from ranks.launch import CONDUCTOR, RankLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRank:
    """Ready to compute with the others."""

    part: LoadedPart
    runner: PartRunner
    """The caller's to close."""
    facts: RankFacts


def load_rank(
    spec: EngineSpec,
    launch: RankLaunch,
    collective: ExpertCollective,
    together: LoadedTogether,
    progress: PhaseProgress,
) -> LoadedRank:
    """Raises as load_part."""
    with memory_errors():
        part = load_part(spec, progress, _portion(spec, launch, collective, together))
        runner = _runner_of(part, collective, progress)
        if part.size.device.type == "cuda":
            warm_up_experts(part.decoder, part.size.max_batch_tokens)
    return LoadedRank(part=part, runner=runner, facts=loaded_facts(part, launch))


def _runner_of(
    part: LoadedPart, collective: ExpertCollective, progress: PhaseProgress
) -> PartRunner:
    runner = runner_of(part, progress)
    if not part.homes.are_several:
        return runner
    return OwnSequences(
        own=runner,
        homes=part.homes,
        block_size=part.pool.layout.block_size,
        experts=part.decoder.experts,
        collective=collective,
        logits_at=CONDUCTOR,
    )


def _portion(
    spec: EngineSpec, launch: RankLaunch, collective: ExpertCollective, together: LoadedTogether
) -> Portion:
    return Portion(
        rank=Rank(launch.rank, launch.world_size),
        expert_parallel_size=spec.options.expert_parallel_size,
        row_sharing=sharing_of(spec.options, spec.card.config),
        collective=collective,
        logits_at=CONDUCTOR,
        together=together,
        num_beside=launch.num_beside,
        free_bytes=launch.free_bytes,
    )
