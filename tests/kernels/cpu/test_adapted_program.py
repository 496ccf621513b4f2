"""A recorded program with adapters beside matrices of groups: the bits of the kernels called one by
one."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.adapters import AdapterPart, AdapterSite
from kernels.cpu.team import TEAM
from kernels.gated_mul import GateActivation
from kernels.tape.recording import Recording
from kernels.tape.tape import Tape
from kernels.weights import GroupedWeight
from tests.kernels.cpu.test_step_program import (
    EPS,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    QKV_HEADS,
    Layer,
    layer,
    natively,
    pool,
    step,
)
from tests.kernels.kernel_sets import DTYPES, cpu_set, random

pytestmark = pytest.mark.usefixtures("every_level")
STARTS, RANKS = (0, 0, 8, 24), (0, 8, 16, 40)
"""By slot."""
KV_WIDTH = QKV_HEADS.num_kv_heads * HEAD_DIM
SHAPES = {
    "qkv": (HIDDEN, (HEADS * HEAD_DIM, KV_WIDTH, KV_WIDTH)),
    "o": (HEADS * HEAD_DIM, (HIDDEN,)),
    "gate_up": (HIDDEN, (INNER, INNER)),
    "down": (INNER, (HIDDEN,)),
}
STEPS = {
    "one decode": [(1, 19)],
    "sixteen decodes": [(1, 3 + i) for i in range(16)],
    "a mixture": [(1, 9), (1, 30), (5, 20), (13, 13)],
    "rows in blocks": [(150, 151), (1, 7), (80, 80)],
}


def site(inputs: int, widths: tuple[int, ...], dtype: torch.dtype) -> AdapterSite:
    """The second part is left alone by the second adapter."""
    parts, column = [], 0
    for at, width in enumerate(widths):
        ranks = torch.tensor(RANKS, dtype=torch.int32)
        if at == 1:
            ranks[2] = 0
        down = random(sum(RANKS), inputs, dtype=torch.float32, seed=at) / inputs**0.5
        up = random(sum(RANKS), width, dtype=torch.float32, seed=9 + at) / 8
        parts.append(
            AdapterPart(down=down.to(dtype), up=up.to(dtype), lora_ranks=ranks, first_column=column)
        )
        column += width
    starts = torch.tensor(STARTS, dtype=torch.int32)
    return AdapterSite(parts=tuple(parts), starts=starts, max_lora_rank=max(RANKS))


def grouped(outputs: int, inputs: int, dtype: torch.dtype, seed: int) -> GroupedWeight:
    made = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 16, (outputs, inputs), generator=made, dtype=torch.uint8)
    scales = (torch.rand(outputs, inputs // 32, generator=made) / 20 + 0.01).half().float()
    return GroupedWeight(values=values, scales=scales, minimums=-8 * scales, bits=4, dtype=dtype)


@dataclass(frozen=True, slots=True)
class Adapted:
    """A layer with a site at each product; of all but `down` the matrices are groups."""

    layer: Layer
    matrices: dict[str, Any]
    sites: dict[str, AdapterSite]

    def one_by_one(self, batch: Any, kv: torch.Tensor) -> torch.Tensor:
        kernels, norm, layer = self.layer.kernels, self.layer.norm, self.layer
        slots = batch.adapters

        def product(name: str, x: torch.Tensor) -> torch.Tensor:
            out = self.matrices[name](x)
            kernels.add_adapters(x, out, slots, self.sites[name], batch.max_query_len)
            return out

        residual = layer.embedding.rows(batch.token_ids)
        qkv = product("qkv", kernels.rms_norm(residual, norm, EPS, kv.dtype))
        query = kernels.rope_write_kv(qkv, layer.cos_sin, batch.positions, batch.slots, kv[:, 1])
        attended = kernels.paged_attention(query, kv[:, 1], batch, 0.2)
        rows = batch.logit_rows
        attended, residual, slots = attended[rows], residual[rows], slots[rows].contiguous()
        x = kernels.add_rms_norm(product("o", attended), residual, norm, EPS)
        gated = kernels.gated_mul(product("gate_up", x), GateActivation.SILU)
        x = kernels.add_rms_norm(product("down", gated), residual, norm, EPS)
        return layer.embedding.logits(x)

    def record(self) -> Recording:
        tape, layer = Tape(self.layer.dtype, has_adapters=True), self.layer

        def product(name: str, x: Any, out: str) -> Any:
            return tape.adapt(self.sites[name], x, tape.linear(self.matrices[name], x, out))

        residual = tape.embed(layer.embedding)
        qkv = product("qkv", tape.rms_norm(residual, layer.norm, EPS), "qkv")
        query = tape.rope_write_kv(qkv, QKV_HEADS, layer.cos_sin, 1)
        attended = tape.paged_attention(query, QKV_HEADS, 1, 0.2)
        attended, residual = tape.keep_wanted(attended, residual)
        x = tape.add_rms_norm(product("o", attended, "branch"), residual, layer.norm, EPS)
        gated = tape.gated_mul(product("gate_up", x, "gate_up"), GateActivation.SILU)
        x = tape.add_rms_norm(product("down", gated, "branch"), residual, layer.norm, EPS)
        return tape.finish(tape.logits(layer.embedding, x))


def adapted(dtype: torch.dtype) -> Adapted:
    plain, kernels = layer(dtype), cpu_set("native")
    matrices: dict[str, Any] = {"down": plain.down}
    for seed, name in enumerate(("qkv", "o", "gate_up")):
        inputs, widths = SHAPES[name]
        matrices[name] = kernels.pack_linear(grouped(sum(widths), inputs, dtype, seed))
    sites = {name: site(*shape, dtype) for name, shape in SHAPES.items()}
    return Adapted(plain, matrices, sites)


def with_adapters(sequences: list[tuple[int, int]]) -> SimpleNamespace:
    """Slots 1, 0, 2, 3, 1 ... by sequence."""
    slots = [(1, 0, 2, 3)[at % 4] for at, (new, _) in enumerate(sequences) for _ in range(new)]
    batch = vars(step(sequences))
    return SimpleNamespace(**{**batch, "adapters": torch.tensor(slots, dtype=torch.int32)})


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STEPS)
def test_an_adapted_program_has_the_bits_of_its_kernels_called_one_by_one(
    name: str, dtype: torch.dtype, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TEAM, "num_threads", num_threads)
    parts, batch = adapted(dtype), with_adapters(STEPS[name])
    expected_kv, kv = pool(dtype), pool(dtype)
    expected = parts.one_by_one(batch, expected_kv)
    program = natively(parts.record())
    assert torch.equal(program(batch, kv), expected)
    assert torch.equal(kv, expected_kv)
    batch.adapters = torch.zeros_like(batch.adapters)
    assert not torch.equal(program(batch, kv), expected)
