"""Routed experts on a GPU: few rows beside the bytes of the experts that they chose (goal 1.2 times
the time of copying as many), many rows beside the rate of a large matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks.gpu.timing import GpuFloor, num_copies, seconds_per_work
from benchmarks.report import Row
from kernels.dispatch.kernel_sets import triton_set
from kernels.experts import Experts, RoutingRule
from kernels.fp8 import quantize_fp8
from kernels.quantize import quantize_groups
from kernels.weights import Weight

PART = 1 / 1.2
FEW, MANY = (1, 4, 16, 64), (256, 2048, 8192)
BF16 = torch.bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The experts of one layer."""

    name: str
    num_experts: int
    num_chosen: int
    hidden: int
    size: int

    @property
    def flops_per_row(self) -> float:
        """Of one row's experts."""
        return 2.0 * self.num_chosen * 3 * self.hidden * self.size


SHAPES = (
    Shape(name="Mixtral 8x7B", num_experts=8, num_chosen=2, hidden=4096, size=14336),
    Shape(name="Qwen3 30B-A3B", num_experts=128, num_chosen=8, hidden=2048, size=768),
    Shape(name="DeepSeek-V2-Lite", num_experts=64, num_chosen=6, hidden=2048, size=1408),
)
KINDS = ("bf16", "int4", "fp8")


def rows(floor: GpuFloor) -> list[Row]:
    """The table of this module."""
    table = []
    for shape in SHAPES:
        for kind in KINDS:
            layer = layer_of(shape, kind, torch.device("cuda"))
            table += [few_row(shape, kind, layer, num_rows, floor) for num_rows in FEW]
            table += [many_row(shape, kind, layer, num_rows, floor) for num_rows in MANY]
            del layer
            torch.cuda.empty_cache()
        table += [route_row(shape, num_rows, floor) for num_rows in (1, 64, 8192)]
    return table


def layer_of(shape: Shape, kind: str, device: torch.device) -> Experts:
    """Random weights; each expert's are made when they are packed."""
    gate_up = RandomWeights(shape.num_experts, 2 * shape.size, shape.hidden, kind, device)
    down = RandomWeights(shape.num_experts, shape.hidden, shape.size, kind, device)
    return triton_set().pack_experts(gate_up, down)


class RandomWeights(list[Weight]):
    """A sequence whose items come into being when they are asked for."""

    def __init__(
        self, count: int, outputs: int, inputs: int, kind: str, device: torch.device
    ) -> None:
        super().__init__()
        self._count, self._shape, self._kind, self._device = count, (outputs, inputs), kind, device

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Weight:  # type: ignore[override]
        if not 0 <= index < self._count:
            raise IndexError(index)
        dtype = BF16 if self._device.type == "cuda" else torch.float16
        plain = torch.randn(self._shape, device=self._device) * self._shape[1] ** -0.5
        if self._kind == "fp8":
            return quantize_fp8(plain, dtype=dtype)
        if self._kind == "int4":
            return quantize_groups(plain, bits=4, dtype=dtype)
        return plain.to(dtype)

    def __iter__(self) -> Iterator[Weight]:
        return (self[index] for index in range(self._count))


def routed(
    shape: Shape, num_rows: int, seed: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows whose experts are drawn evenly: x, ids, weights."""
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = BF16 if device.type == "cuda" else torch.float16
    x = torch.randn(num_rows, shape.hidden, generator=generator, device=device).to(dtype)
    chances = torch.rand(num_rows, shape.num_experts, generator=generator, device=device)
    ids = chances.topk(shape.num_chosen, dim=-1).indices
    weights = torch.full(ids.shape, 1 / shape.num_chosen, device=device)
    return x, ids, weights


def few_row(shape: Shape, kind: str, layer: Experts, num_rows: int, floor: GpuFloor) -> Row:
    """Different rows in turn choose different experts: what one reads is cold for the next."""
    per_expert = layer.num_bytes / shape.num_experts
    copies = min(40, num_copies(int(per_expert * shape.num_chosen)))
    cuda = torch.device("cuda")
    inputs = [routed(shape, num_rows, seed, cuda) for seed in range(copies)]
    num_chosen = sum(len(ids.unique()) for _, ids, _ in inputs) / copies
    works = [lambda given=given: layer(*given) for given in inputs]
    name = f"experts, {shape.name} {kind}, {num_rows} rows"
    return floor.bytes_row(name, seconds_per_work(works), num_chosen * per_expert, PART)


def many_row(shape: Shape, kind: str, layer: Experts, num_rows: int, floor: GpuFloor) -> Row:
    """The floor counts arithmetic only."""
    given = routed(shape, num_rows, 1, torch.device("cuda"))
    seconds = seconds_per_work([lambda: layer(*given)])
    name = f"experts, {shape.name} {kind}, {num_rows} rows"
    return floor.flops_row(name, seconds, num_rows * shape.flops_per_row)


def route_row(shape: Shape, num_rows: int, floor: GpuFloor) -> Row:
    """A launch, mostly."""
    logits = torch.randn(num_rows, shape.num_experts, device="cuda")
    rule, route = RoutingRule(num_chosen=shape.num_chosen), triton_set().route_experts
    seconds = seconds_per_work([lambda: route(logits, None, rule)] * 20)
    touched = logits.nbytes + num_rows * shape.num_chosen * 12
    return floor.bytes_row(f"routing, {shape.name}, {num_rows} rows", seconds, touched, 0.5)
