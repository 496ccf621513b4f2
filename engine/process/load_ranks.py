"""How an engine's process loads its model: alone, or as the conductor of a group of ranks."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from cluster.errors import ConfigError
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank
from cluster.supervisor.devices import visible_gpus
from engine.contract.environ import TORCH_ENVIRON
from engine.contract.expert_exchange import check_attention, rows_are_exchanged
from engine.contract.spec import EngineSpec
from engine.model.load_phases import PhaseProgress
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


def loader_of(rank_module: str) -> Callable[[EngineSpec, PhaseProgress], Replica]:
    """A ReplicaLoader; `rank_module` is what its other ranks are started with."""

    def load(spec: EngineSpec, progress: PhaseProgress) -> Replica:
        check_attention(spec)
        if spec.options.tensor_parallel_size == 1:
            return load_replica(spec, progress)
        return load_group(spec, progress, spawner_of(spec, rank_module))

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
    options = spec.options
    split = ModelSplit(
        config=spec.card.config,
        rank=Rank(0, options.tensor_parallel_size),
        expert_parallel_size=options.expert_parallel_size,
        exchanges_rows=rows_are_exchanged(spec),
        data_parallel_attention=options.data_parallel_attention,
    )
    fitted_split(spec.card, split, weights_on(device, spec))


def spawner_of(spec: EngineSpec, rank_module: str) -> Spawner:
    """As the options say; asks CUDA nothing. Raises ConfigError for an engine that has no ranks."""
    if not rank_module:
        raise ConfigError(
            "this engine runs as one process; use --tensor-parallel-size 1",
            param="tensor_parallel_size",
        )
    uses_gpus = wants_gpu(spec.options.device)
    if spec.options.rank_launcher == "ray":
        return RaySpawner(
            rank_module,
            name=f"{spec.worker_id}-{spec.incarnation}",
            address=spec.options.ray_address,
            uses_gpus=uses_gpus,
            environ=TORCH_ENVIRON,
        )
    return ProcessSpawner(rank_module, gpus=visible_gpus(os.environ) if uses_gpus else None)
