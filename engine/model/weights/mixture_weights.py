"""The weights of a mixture of experts; each expert is read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from cluster.models.card import MixtureConfig
from cluster.models.mixture_tensors import ROUTER, ROUTER_BIAS, SHARED, expert_prefix
from cluster.models.tensors import layer_prefix
from engine.model.weights.weight_reader import WeightReader
from kernels.experts import HeldExperts
from kernels.weights import Weight


class ExpertWeights(Sequence[Weight]):
    """One matrix of every expert of a layer. An item is read anew each time it is asked for."""

    def __init__(self, read: Callable[[int], Weight], num_experts: int) -> None:
        self._read = read
        self._num_experts = num_experts

    def __len__(self) -> int:
        return self._num_experts

    def __getitem__(self, index: int) -> Weight:  # type: ignore[override]  # no slices
        if not 0 <= index < self._num_experts:
            raise IndexError(index)
        return self._read(index)

    def __iter__(self) -> Iterator[Weight]:
        return map(self._read, range(self._num_experts))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWeights:
    """Of the experts that every token goes to, which are one feed-forward."""

    gate_up: Weight  # [2 * shared_size, hidden]
    down: Weight  # [hidden, shared_size]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedWeights:
    """Of some experts of a layer, a rank's columns of them."""

    held: HeldExperts
    gate_up: Sequence[Weight]  # of each expert [2 * expert_size, hidden]
    down: Sequence[Weight]  # of each expert [hidden, expert_size]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureWeights:
    """Matrices are [out, in]. Experts are the rank's own."""

    router: torch.Tensor  # [num_experts, hidden], of the replica's dtype
    router_bias: torch.Tensor | None  # float32 [num_experts]
    routed: RoutedWeights
    shared: SharedWeights | None


def mixture_weights(reader: WeightReader, layer: int, mixture: MixtureConfig) -> MixtureWeights:
    """Of the layer at that index."""
    prefix = layer_prefix(layer)
    return MixtureWeights(
        router=reader.plain(prefix + ROUTER),
        router_bias=reader.exact(prefix + ROUTER_BIAS) if mixture.has_score_bias else None,
        routed=routed_weights(reader, layer, reader.split.experts),
        shared=_shared(reader, prefix + SHARED) if mixture.shared_size else None,
    )


def routed_weights(reader: WeightReader, layer: int, experts: Sequence[int]) -> RoutedWeights:
    """Of these experts, which the reader's rank has."""

    def gate_up(index: int) -> Weight:
        prefix = layer_prefix(layer) + expert_prefix(experts[index])
        return reader.matrix(f"{prefix}gate_proj.weight", f"{prefix}up_proj.weight")

    def down(index: int) -> Weight:
        prefix = layer_prefix(layer) + expert_prefix(experts[index])
        return reader.matrix(f"{prefix}down_proj.weight")

    return RoutedWeights(
        held=HeldExperts(tuple(experts), reader.split.expert_placement.num_experts),
        gate_up=ExpertWeights(gate_up, len(experts)),
        down=ExpertWeights(down, len(experts)),
    )


def _shared(reader: WeightReader, prefix: str) -> SharedWeights:
    return SharedWeights(
        gate_up=reader.matrix(f"{prefix}gate_proj.weight", f"{prefix}up_proj.weight"),
        down=reader.matrix(f"{prefix}down_proj.weight"),
    )
