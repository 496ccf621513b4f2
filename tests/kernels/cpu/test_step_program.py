"""A recorded program against the same kernels called one by one: equal bits."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.cpu.lowering import native_form
from kernels.cpu.step_program import StepProgram
from kernels.cpu.team import TEAM
from kernels.gated_mul import GateActivation
from kernels.linear import Linear
from kernels.reference.linear import TorchLinear
from kernels.tape.kernel_set import KernelSet
from kernels.tape.recording import NoNativeForm, Player, Recording
from kernels.tape.rows import QkvHeads
from kernels.tape.tape import Tape
from tests.kernels.kernel_sets import DTYPES, cpu_set, paged_queries, random

pytestmark = pytest.mark.usefixtures("every_level")
BLOCK_SIZE, NUM_BLOCKS, KV_HEADS, HEADS, HEAD_DIM = 4, 64, 2, 6, 32
HIDDEN, INNER, VOCAB, EPS = 96, 80, 61, 1e-5
QKV_HEADS = QkvHeads(num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a decoder between an embedding and a head that are one matrix."""

    kernels: KernelSet
    dtype: torch.dtype
    embedding: Linear
    qkv: Linear
    o: Linear
    gate_up: Linear
    down: Linear
    norm: torch.Tensor
    cos_sin: torch.Tensor

    def one_by_one(self, batch: Any, kv: torch.Tensor) -> torch.Tensor:
        kernels, dtype = self.kernels, kv.dtype
        residual = self.embedding.rows(batch.token_ids)
        x = kernels.rms_norm(residual, self.norm, EPS, dtype)
        qkv = self.qkv(x)
        query = kernels.rope_write_kv(qkv, self.cos_sin, batch.positions, batch.slots, kv[:, 1])
        attended = kernels.paged_attention(query, kv[:, 1], batch, 0.2)
        attended, residual = attended[batch.logit_rows], residual[batch.logit_rows]
        x = kernels.add_rms_norm(self.o(attended), residual, self.norm, EPS)
        branch = self.down(kernels.gated_mul(self.gate_up(x), GateActivation.SILU))
        return self.embedding.logits(kernels.add_rms_norm(branch, residual, self.norm, EPS))

    def record(self, tape: Tape) -> Recording:
        residual = tape.embed(self.embedding)
        qkv = tape.linear(self.qkv, tape.rms_norm(residual, self.norm, EPS), "qkv")
        query = tape.rope_write_kv(qkv, QKV_HEADS, self.cos_sin, 1)
        attended = tape.paged_attention(query, QKV_HEADS, 1, 0.2)
        attended, residual = tape.keep_wanted(attended, residual)
        branch = tape.linear(self.o, attended, "branch")
        x = tape.add_rms_norm(branch, residual, self.norm, EPS)
        gated = tape.gated_mul(tape.linear(self.gate_up, x, "gate_up"), GateActivation.SILU)
        branch = tape.linear(self.down, gated, "branch")
        x = tape.add_rms_norm(branch, residual, self.norm, EPS)
        return tape.finish(tape.logits(self.embedding, x))

    def program(self) -> StepProgram:
        player = natively(self.record(Tape(self.dtype)))
        assert isinstance(player, StepProgram)
        return player


def layer(dtype: torch.dtype) -> Layer:
    kernels = cpu_set("native")

    def matrix(out: int, inputs: int, seed: int, *, biased: bool = False) -> Linear:
        bias = random(out, dtype=dtype, seed=seed + 50) if biased else None
        return kernels.pack_linear(random(out, inputs, dtype=dtype, seed=seed) * 0.1, bias)

    return Layer(
        kernels=kernels,
        dtype=dtype,
        embedding=matrix(VOCAB, HIDDEN, 1),
        qkv=matrix(QKV_HEADS.width, HIDDEN, 2, biased=True),
        o=matrix(HIDDEN, HEADS * HEAD_DIM, 3),
        gate_up=matrix(2 * INNER, HIDDEN, 4),
        down=matrix(HIDDEN, INNER, 5, biased=True),
        norm=random(HIDDEN, dtype=torch.float32, seed=6),
        cos_sin=random(256, 2, HEAD_DIM // 2, dtype=torch.float32, seed=7),
    )


def natively(recording: Recording) -> Player:
    play_natively = cpu_set("native").play_natively
    assert play_natively is not None
    return play_natively(recording)


def pool(dtype: torch.dtype) -> torch.Tensor:
    return random(NUM_BLOCKS, 2, 2, KV_HEADS, BLOCK_SIZE, HEAD_DIM, dtype=dtype, seed=8)


def step(sequences: list[tuple[int, int]], logit_rows: list[int] | None = None) -> Any:
    """From (query tokens, context tokens) of each sequence; by default the last rows are wanted."""
    queries = paged_queries(sequences, NUM_BLOCKS, BLOCK_SIZE)
    positions = [p for new, context in sequences for p in range(context - new, context)]
    rows = [row for row, (new, _) in enumerate(sequences) for _ in range(new)]
    slots = [
        int(queries.block_tables[row, p // BLOCK_SIZE]) * BLOCK_SIZE + p % BLOCK_SIZE
        for row, p in zip(rows, positions, strict=True)
    ]
    wanted = (queries.query_starts[1:] - 1).tolist() if logit_rows is None else logit_rows
    generator = torch.Generator().manual_seed(9)
    return SimpleNamespace(
        **{name: getattr(queries, name) for name in queries.__dataclass_fields__},
        token_ids=torch.randint(0, VOCAB, (len(rows),), generator=generator),
        positions=torch.tensor(positions),
        slots=torch.tensor(slots),
        logit_rows=torch.tensor(wanted, dtype=torch.int64),
        adapters=None,
    )


STEPS = {
    "one decode": [(1, 19)],
    "sixteen decodes": [(1, 3 + i) for i in range(16)],
    "a prompt": [(37, 37)],
    "a mixture": [(1, 9), (1, 30), (5, 20), (13, 13)],
    "rows in blocks": [(150, 151), (1, 7), (80, 80)],
}
"""The last has enough rows for some to pass through several operations before the others."""


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STEPS)
def test_a_program_has_the_bits_of_its_kernels_called_one_by_one(
    name: str, dtype: torch.dtype, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TEAM, "num_threads", num_threads)
    parts, batch = layer(dtype), step(STEPS[name])
    program = parts.program()
    expected_kv, kv = pool(dtype), pool(dtype)
    expected = parts.one_by_one(batch, expected_kv)
    assert torch.equal(program(batch, kv), expected)
    assert torch.equal(kv, expected_kv)


def test_steps_of_any_size_follow_each_other_in_one_workspace() -> None:
    parts = layer(torch.bfloat16)
    program = parts.program()
    sizes = []
    for name in ("one decode", "a prompt", "a mixture", "one decode"):
        batch = step(STEPS[name])
        expected = parts.one_by_one(batch, pool(torch.bfloat16))
        assert torch.equal(program(batch, pool(torch.bfloat16)), expected)
        sizes.append(program.workspace_bytes)
    program(step([(90, 90)]), pool(torch.bfloat16))
    assert len(set(sizes)) == 1 and program.workspace_bytes > sizes[0]


@pytest.mark.parametrize("wanted", [[0], list(range(230, -1, -1))])
def test_a_long_prompt_of_which_one_or_all_rows_are_wanted(wanted: list[int]) -> None:
    parts, batch = layer(torch.bfloat16), step([(231, 231)], wanted)
    logits = parts.program()(batch, pool(torch.bfloat16))
    assert torch.equal(logits, parts.one_by_one(batch, pool(torch.bfloat16)))


@pytest.mark.parametrize("wanted", [[], [3], [12, 0, 3, 3], list(range(13)) * 8])
def test_any_rows_may_be_wanted_in_any_order(wanted: list[int]) -> None:
    parts, batch = layer(torch.float32), step([(13, 13)], wanted)
    logits = parts.program()(batch, pool(torch.float32))
    assert torch.equal(logits, parts.one_by_one(batch, pool(torch.float32)))


def test_logits_of_a_step_stay_when_the_next_one_runs() -> None:
    program = layer(torch.float32).program()
    first = program(step([(1, 5)]), pool(torch.float32))
    kept = first.clone()
    program(step([(1, 9), (1, 7)]), pool(torch.float32))
    assert torch.equal(first, kept)


@pytest.mark.parametrize("token_id", [-1, VOCAB, 1 << 40])
def test_a_token_outside_the_vocabulary_is_an_error(token_id: int) -> None:
    program, batch = layer(torch.float32).program(), step([(3, 3)])
    batch.token_ids[1] = token_id
    with pytest.raises(IndexError, match="1 token ids are not in the vocabulary"):
        program(batch, pool(torch.float32))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"slots": torch.zeros(3, dtype=torch.int32)}, "slots is torch.int32"),
        ({"positions": torch.zeros(2, dtype=torch.int64)}, r"positions is .*\(2,\); needed"),
        ({"query_starts": torch.zeros(5, dtype=torch.int32)}, "query_starts"),
        ({"logit_rows": torch.zeros(6, dtype=torch.int64)[::2]}, "logit_rows .*contiguous"),
        ({"block_tables": torch.zeros(2, 4, dtype=torch.int32)}, "block_tables has shape"),
    ],
)
def test_a_wrong_tensor_is_refused_at_the_door(change: dict[str, Any], problem: str) -> None:
    program, batch = layer(torch.float32).program(), step([(3, 3)])
    with pytest.raises(ValueError, match=problem):
        program(SimpleNamespace(**{**vars(batch), **change}), pool(torch.float32))


def test_a_pool_of_another_model_is_refused() -> None:
    program, batch = layer(torch.float32).program(), step([(3, 3)])
    with pytest.raises(ValueError, match="kv is torch.bfloat16"):
        program(batch, pool(torch.bfloat16))
    with pytest.raises(ValueError, match="a pool of shape"):
        program(batch, pool(torch.float32)[:, :1].contiguous())
    with pytest.raises(ValueError, match="a pool of shape"):
        program(batch, pool(torch.float32)[:, :, :, :1].contiguous())


@pytest.mark.parametrize(
    ("heads", "dtype", "problem"),
    [
        (QkvHeads(num_heads=2, num_kv_heads=2, head_dim=47), torch.float32, "heads of 47 values"),
        (QkvHeads(num_heads=2, num_kv_heads=2, head_dim=48), torch.float16, r"torch\.float16"),
    ],
)
def test_heads_without_a_native_form_are_named(
    heads: QkvHeads, dtype: torch.dtype, problem: str
) -> None:
    tape = Tape(dtype)
    qkv = tape.rows("qkv", heads.width)
    query = tape.rope_write_kv(qkv, heads, torch.zeros(8, 2, heads.head_dim // 2), 0)
    with pytest.raises(NoNativeForm, match=problem):
        native_form(tape.finish(query))


def test_matrices_without_a_native_form_are_named() -> None:
    tape = Tape(torch.float32)
    residual = tape.embed(TorchLinear(random(VOCAB, HIDDEN, dtype=torch.float32)))
    with pytest.raises(NoNativeForm, match="TorchLinear"):
        native_form(tape.finish(residual))
    tape = Tape(torch.bfloat16)
    odd = cpu_set("native").pack_linear(random(HIDDEN, 95, dtype=torch.bfloat16))
    with pytest.raises(NoNativeForm, match="95 inputs"):
        native_form(tape.finish(tape.linear(odd, tape.rows("x", 95), "y")))
