"""How an engine's process loads its model: alone, or as the conductor of a group of ranks."""

from __future__ import annotations

import os
from collections.abc import Callable

import structlog
import torch

from cluster.errors import ConfigError
from cluster.launcher.ray.open_ray import HostWait, open_ray_of
from cluster.models.group_split import rank_split, sharing_of
from cluster.sharding import Rank
from cluster.supervisor.devices import visible_gpus
from engine.contract.environ import TORCH_ENVIRON
from engine.contract.spec import EngineSpec
from engine.contract.step_parts import check_parts
from engine.model.load_phases import PhaseProgress, silent
from engine.model.weights.open_checkpoint import fitted_split
from engine.process.threads import use_threads_to_load
from engine.runner.device import resolve_device, wants_gpu
from engine.runner.gpu_formats import weights_on
from engine.runner.model_runner import Replica
from engine.runner.ranks.conductor import load_conductor
from engine.runner.ranks.forming import GroupNeeds, form_group
from engine.runner.replica import load_replica
from ranks.processes import ProcessSpawner
from ranks.ray.ray_spawner import RaySpawner
from ranks.spawner import Spawner

_LOG = structlog.get_logger()


def loader_of(rank_module: str) -> Callable[[EngineSpec, PhaseProgress], Replica]:
    """A ReplicaLoader; `rank_module` is what its other ranks are started with."""

    def load(spec: EngineSpec, progress: PhaseProgress) -> Replica:
        num_ranks = spec.options.tensor_parallel_size
        sharing = sharing_of(spec.options, spec.card.config)
        check_parts(spec.options)
        if num_ranks == 1:
            return load_replica(spec, progress)
        _LOG.info(
            "a group of ranks starts",
            num_ranks=num_ranks,
            rows_at_a_rank=sharing.value,
            max_num_seqs_at_a_rank=spec.options.max_num_seqs // spec.options.num_homes,
            max_batch_tokens_at_a_rank=spec.options.max_batch_tokens // spec.options.num_homes,
        )
        return load_group(spec, progress, spawner_of(spec, rank_module, progress))

    return load


def load_group(spec: EngineSpec, progress: PhaseProgress, spawner: Spawner) -> Replica:
    """The replica, with its `others`. Raises as `form_group` and `load_conductor`; a model that
    cannot be shared by so many ranks is refused before any is started."""

    def own_device() -> torch.device:
        device = resolve_device(spec.options.device)
        check_split(spec, device)
        return device

    needs = GroupNeeds(spec=spec, own_device=own_device, progress=progress)
    group = form_group(needs, spawner)
    use_threads_to_load(spec.options.num_threads, num_beside=group.launch.num_beside)
    return load_conductor(spec, group, progress)


def check_split(spec: EngineSpec, device: torch.device) -> None:
    """Raises ConfigError with the numbers of ranks that fit."""
    first = Rank(0, spec.options.tensor_parallel_size)
    split = rank_split(spec.options, spec.card.config, first)
    fitted_split(spec.card, split, weights_on(device, spec))


def spawner_of(spec: EngineSpec, rank_module: str, progress: PhaseProgress = silent) -> Spawner:
    """As the options say; asks CUDA nothing. `progress` hears of a wait for hosts. Raises
    ConfigError for an engine that has no ranks."""
    if not rank_module:
        raise ConfigError(
            "this engine runs as one process; use --tensor-parallel-size 1",
            param="tensor_parallel_size",
        )
    options = spec.options
    uses_gpus = wants_gpu(options.device)
    if options.rank_launcher == "ray":
        return RaySpawner(
            rank_module,
            name=f"{spec.worker_id}-{spec.incarnation}",
            address=options.ray_address,
            uses_gpus=uses_gpus,
            environ=TORCH_ENVIRON,
            hosts=open_ray_of(options.ray_listen, options.ray_hosts, options.ray_address),
            patience=HostWait(
                limit_s=options.ray_wait_s, on_wait=lambda: progress("place ranks", 0.0)
            ),
        )
    return ProcessSpawner(rank_module, gpus=visible_gpus(os.environ) if uses_gpus else None)
