"""Loaders of ranks of large models, on tensors that have shapes and no numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from cluster.models.card import DecoderConfig
from cluster.models.footprint import held_parameters, weight_bytes
from cluster.models.model_split import ModelSplit
from cluster.models.tensor_part import WHOLE, TensorPart
from cluster.models.tensors import expected_shapes, is_router
from cluster.sharding import ranks_of
from engine.model.weights import decoder_weights
from engine.model.weights.decoder_weights import DecoderWeights
from kernels.weights import Weight
from tests.cluster.models.configs import DEEPSEEK_V3, LLAMA_3_70B, card_of

META = torch.device("meta")
LLAMA = replace(LLAMA_3_70B, num_layers=2)
DEEPSEEK = replace(DEEPSEEK_V3, num_layers=4)  # three of them dense


class MetaCheckpoint:
    """A `Checkpoint` of bfloat16 matrices; notes what is read of it."""

    def __init__(self, config: DecoderConfig) -> None:
        self._shapes = expected_shapes(config)
        self.parts: dict[str, TensorPart] = {}

    def names(self) -> frozenset[str]:
        return frozenset(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def inputs_per_scale(self, name: str) -> int | None:
        return None

    def read(self, name: str, part: TensorPart = WHOLE) -> torch.Tensor:
        self.parts[name] = part
        sizes = [len(run) for run in part.within(self._shapes[name])]
        return torch.empty(sizes, dtype=torch.bfloat16, device=META)

    def read_weight(self, name: str, part: TensorPart = WHOLE) -> Weight:
        return self.read(name, part)


def tensors_of(held: object) -> Iterator[torch.Tensor]:
    """All that a record, or a sequence, is made of."""
    if isinstance(held, torch.Tensor):
        yield held
    elif isinstance(held, Sequence):
        for part in held:
            yield from tensors_of(part)
    elif dataclasses.is_dataclass(held):
        for field in dataclasses.fields(held):
            yield from tensors_of(getattr(held, field.name))


def held_by(weights: DecoderWeights) -> list[torch.Tensor]:
    layers = [weights.layer(index) for index in range(weights.config.num_layers)]
    held = [weights.embedding(), weights.lm_head(), weights.final_norm(), layers]
    return list(tensors_of(held))


def router_values(config: DecoderConfig) -> int:
    """Counted as vectors are, in float32; held in the dtype."""
    shapes = expected_shapes(config).items()
    return sum(math.prod(shape) for name, shape in shapes if is_router(name))


@pytest.mark.parametrize(
    ("config", "size", "experts"),
    [
        *((LLAMA, size, None) for size in (1, 2, 3, 4, 6, 8, 9)),
        *((DEEPSEEK, size, None) for size in (1, 2, 3, 4, 6, 8, 9)),
        *((DEEPSEEK, size, experts) for size, experts in ((4, 1), (6, 2), (8, 4), (9, 3))),
    ],
)
def test_each_rank_holds_its_part_of_every_tensor_and_what_was_counted(
    config: DecoderConfig, size: int, experts: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in ranks_of(size):
        split = ModelSplit(config=config, rank=rank, expert_parallel_size=experts)
        noted = MetaCheckpoint(config)
        monkeypatch.setattr(decoder_weights, "open_checkpoint", lambda _, noted=noted: noted)
        weights = DecoderWeights(card_of(config), torch.bfloat16, META, split=split)
        held = held_by(weights)
        assert sum(tensor.numel() for tensor in held) == held_parameters(split).total
        planned = weight_bytes(split, dtype="bfloat16", weights="full")
        assert sum(tensor.nbytes for tensor in held) == planned - 2 * router_values(config)
        parts = {name: split.part(name) for name in expected_shapes(config)}
        assert noted.parts == {name: part for name, part in parts.items() if part is not None}
