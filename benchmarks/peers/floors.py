"""What this machine allows: weights and KV read once from memory, products at the best rate.

Both rates are measured in the run that is judged by them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.cpu_floor import CpuFloor, best_of, measure_floor
from benchmarks.step_shape import StepShape
from cluster.home import kernels_folder
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from kernels.dispatch.kernel_sets import kernels_for
from kernels.quantize import quantize_groups

MATRIX = 2048
_BITS = {"full": 16.0, "int8": 9.0, "int4": 5.0}
"""Per weight, with scale and minimum of a group of 32 in half precision; "auto": the file's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """Rates of this machine, and what one format of the model must move."""

    card: ModelCard
    memory: CpuFloor
    int8_ops_per_s: float
    weights: str = "auto"
    kv: str = "int8"

    def of_format(self, weights: str, kv: str) -> Floors:
        """The same machine with other weights and KV."""
        return Floors(
            card=self.card,
            memory=self.memory,
            int8_ops_per_s=self.int8_ops_per_s,
            weights=weights,
            kv=kv,
        )

    def decode_ms(self, num_seqs: int, context_len: float) -> float:
        """One step of sequences that are alike."""
        return self._step_ms(StepShape(num_seqs, 1, int(context_len)))

    def prefill_ms(self, num_tokens: int) -> float:
        """One prompt."""
        return self._step_ms(StepShape(1, num_tokens, num_tokens))

    def _step_ms(self, shape: StepShape) -> float:
        config = self.card.config
        token_bytes = config.kv_shape.token_bytes(dtype="bfloat16", kv=self.kv)
        kv_bytes = shape.num_seqs * shape.context_len * token_bytes
        rate = self.memory.bf16_flops_per_s if self.weights == "full" else self.int8_ops_per_s
        products_ms = shape.flops(config, torch.bfloat16) / rate * 1e3
        return max(self.memory.read_ms(self._weight_bytes() + kv_bytes), products_ms)

    def _weight_bytes(self) -> float:
        if self.weights == "auto":
            return self.card.weight_bytes
        values = StepShape(1, 1, 1).read_bytes(self.card.config, torch.float32) / 4
        return values * _BITS[self.weights] / 8

    def __str__(self) -> str:
        return f"{self.memory}, 8-bit product {self.int8_ops_per_s / 1e9:.0f} GOP/s"


def measure_floors(threads: int) -> Floors:
    """With that many threads; the format is the smallest that any of the compared runs."""
    torch.set_num_threads(threads)
    return Floors(
        card=ModelStore().resolve("smollm2"),
        memory=measure_floor(),
        int8_ops_per_s=2.0 * MATRIX**3 / _int8_product_s(),
    )


def _int8_product_s() -> float:
    """Seconds of the faster one: torch's, or ours, where torch has none for this CPU."""
    left = torch.randint(-127, 128, (MATRIX, MATRIX), dtype=torch.int8)
    right = torch.randint(-127, 128, (MATRIX, MATRIX), dtype=torch.int8).t()
    x, weight = torch.randn(2, MATRIX, MATRIX).bfloat16()
    kernels = kernels_for(torch.device("cpu"), kernels_folder())
    ours = kernels.pack_linear(quantize_groups(weight, bits=8, dtype=torch.bfloat16))
    return min(best_of(lambda: torch._int_mm(left, right), 7), best_of(lambda: ours(x), 7))
