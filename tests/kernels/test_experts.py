"""Routed experts against a sum written out, and every implementation against the reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from kernels.dispatch.kernel_sets import REFERENCE
from kernels.experts import Experts, HeldExperts
from kernels.weights import GroupedWeight, Weight
from tests.kernels.kernel_sets import CPU_SETS, DTYPES, cpu_set, random, tolerance

NUM_EXPERTS, HIDDEN, SIZE = 6, 48, 40


def matrices(dtype: torch.dtype) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    gate_up = [random(2 * SIZE, HIDDEN, dtype=dtype, seed=e) / 7 for e in range(NUM_EXPERTS)]
    down = [random(HIDDEN, SIZE, dtype=dtype, seed=50 + e) / 6 for e in range(NUM_EXPERTS)]
    return gate_up, down


def packed(name: str, dtype: torch.dtype) -> Experts:
    return cpu_set(name).pack_experts(*matrices(dtype))


def packed_of(name: str, dtype: torch.dtype, *experts: int) -> Experts:
    """Of a rank that holds these."""
    gate_up, down = matrices(dtype)
    own = [gate_up[e] for e in experts], [down[e] for e in experts]
    return cpu_set(name).pack_experts(*own, HeldExperts(experts, NUM_EXPERTS))


def choice(num_rows: int, k: int, *, of: int = NUM_EXPERTS) -> tuple[torch.Tensor, torch.Tensor]:
    """Different experts for each row, with weights that do not sum to 1."""
    scores = random(num_rows, of, dtype=torch.float32, seed=9)
    weights = scores.topk(k).values.exp()
    return scores.topk(k).indices, weights


def test_the_reference_is_the_weighted_sum_of_gated_feed_forwards() -> None:
    gate_up, down = matrices(torch.float32)
    x = random(5, HIDDEN, dtype=torch.float32)
    ids, weights = choice(5, 2)
    expected = torch.zeros(5, HIDDEN)
    for row in range(5):
        for expert, weight in zip(ids[row].tolist(), weights[row].tolist(), strict=True):
            gate, up = (gate_up[expert] @ x[row]).chunk(2)
            expected[row] += weight * (down[expert] @ (F.silu(gate) * up))
    ours = packed("reference", torch.float32)(x, ids, weights)
    torch.testing.assert_close(ours, expected, **tolerance(torch.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "k"), [(1, 1), (1, 4), (7, 2), (40, 3), (0, 2)])
@pytest.mark.parametrize("name", CPU_SETS)
def test_experts_are_those_of_the_reference(
    name: str, num_rows: int, k: int, dtype: torch.dtype
) -> None:
    x = random(num_rows, HIDDEN, dtype=dtype)
    ids, weights = choice(num_rows, k)
    ours = packed(name, dtype)(x, ids, weights)
    expected = packed("reference", dtype)(x, ids, weights)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, expected, **tolerance(dtype))


@pytest.mark.parametrize("name", ["reference", *CPU_SETS])
def test_experts_that_nobody_chose_do_not_count(name: str) -> None:
    gate_up, down = matrices(torch.float32)
    for matrix in (gate_up[4], gate_up[5], down[4], down[5]):
        matrix.fill_(float("nan"))
    x = random(9, HIDDEN, dtype=torch.float32)
    ids, weights = choice(9, 2, of=4)
    assert cpu_set(name).pack_experts(gate_up, down)(x, ids, weights).isfinite().all()


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("dtype", DTYPES)
def test_native_kernels_give_a_row_the_same_bits_in_every_batch(dtype: torch.dtype) -> None:
    experts = packed("native", dtype)
    x = random(50, HIDDEN, dtype=dtype)
    ids, weights = choice(50, 3)
    whole = experts(x, ids, weights)
    for first, end in ((0, 1), (49, 50), (3, 20), (20, 49)):
        part = slice(first, end)
        assert torch.equal(experts(x[part], ids[part], weights[part]), whole[part])


class Asked(list[Weight]):
    """Weights that are made when they are asked for, by iteration; `log` has the order."""

    def __init__(self, kind: str, shape: tuple[int, int], log: list[tuple[str, int]]) -> None:
        super().__init__([torch.empty(0)] * NUM_EXPERTS)
        self._kind, self._shape, self._log = kind, shape, log

    def __iter__(self) -> Iterator[Weight]:
        for index in range(NUM_EXPERTS):
            self._log.append((self._kind, index))
            yield torch.zeros(self._shape)


@pytest.mark.parametrize("name", CPU_SETS)
def test_weights_are_asked_for_once_one_expert_at_a_time(name: str) -> None:
    log: list[tuple[str, int]] = []
    gate_up, down = Asked("up", (2 * SIZE, HIDDEN), log), Asked("down", (HIDDEN, SIZE), log)
    cpu_set(name).pack_experts(gate_up, down)
    assert log == [(kind, index) for index in range(NUM_EXPERTS) for kind in ("up", "down")]


@pytest.mark.parametrize("name", CPU_SETS)
def test_the_bytes_of_all_experts_are_counted(name: str) -> None:
    gate_up, down = matrices(torch.float32)
    stored = sum(matrix.nbytes for matrix in (*gate_up, *down))
    assert stored <= packed(name, torch.float32).num_bytes <= 1.4 * stored  # panels of 32 outputs


@pytest.mark.parametrize("name", ["reference", *CPU_SETS])
def test_unequal_numbers_of_matrices_are_refused(name: str) -> None:
    gate_up, down = matrices(torch.float32)
    with pytest.raises(ValueError, match="6 gates for 5 downs"):
        cpu_set(name).pack_experts(gate_up, down[:-1])


@pytest.mark.parametrize("name", ["reference", *CPU_SETS])
def test_weights_of_another_shape_than_the_ids_are_refused(name: str) -> None:
    ids, weights = choice(3, 2)
    x = random(3, HIDDEN, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"weights has shape \(3, 1\)"):
        packed(name, torch.float32)(x, ids, weights[:, :1])


def test_the_reference_takes_weights_of_every_kind() -> None:
    gate_up, down = matrices(torch.float32)
    grouped = [
        GroupedWeight(
            values=(matrix * 8 + 128).clamp(0, 255).to(torch.uint8),
            scales=torch.full((HIDDEN, 1), 0.125),
            minimums=torch.full((HIDDEN, 1), -16.0),
            bits=8,
            dtype=torch.float32,
        )
        for matrix in down
    ]
    plain = [weight.dequantize() for weight in grouped]
    x = random(4, HIDDEN, dtype=torch.float32)
    ids, weights = choice(4, 2)
    assert torch.equal(
        REFERENCE.pack_experts(gate_up, grouped)(x, ids, weights),
        REFERENCE.pack_experts(gate_up, plain)(x, ids, weights),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "k"), [(1, 1), (1, 4), (40, 3), (0, 2)])
@pytest.mark.parametrize("name", ["reference", *CPU_SETS])
def test_experts_of_several_ranks_add_up_and_skip_those_of_others(
    name: str, num_rows: int, k: int, dtype: torch.dtype
) -> None:
    x = random(num_rows, HIDDEN, dtype=dtype)
    ids, weights = choice(num_rows, k)
    held = [(0,), (1, 3, 4), (2, 5)]
    shares = [packed_of(name, dtype, *experts)(x, ids, weights) for experts in held]
    for experts, share in zip(held, shares, strict=True):
        chose = torch.isin(ids, torch.tensor(experts)).any(1)
        assert not share[~chose].any()
    expected = packed("reference", dtype)(x, ids, weights)
    torch.testing.assert_close(sum(shares), expected, **tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["reference", *CPU_SETS])
def test_exchanged_experts_have_the_bits_of_those_that_were_packed_together(
    name: str, dtype: torch.dtype
) -> None:
    before = packed_of(name, dtype, 0, 1, 2)
    gained = [packed_of(name, dtype, 5), packed_of(name, dtype, 3)]
    after = before.with_experts(HeldExperts((0, 3, 5), NUM_EXPERTS), gained)
    together = packed_of(name, dtype, 0, 3, 5)
    x = random(40, HIDDEN, dtype=dtype)
    ids, weights = choice(40, 3)
    assert torch.equal(after(x, ids, weights), together(x, ids, weights))
    assert torch.equal(before(x, ids, weights), packed_of(name, dtype, 0, 1, 2)(x, ids, weights))
    assert (after.held, after.num_bytes) == (together.held, together.num_bytes)


@pytest.mark.parametrize("name", ["reference", *CPU_SETS])
def test_matrices_of_more_experts_than_are_named_are_refused(name: str) -> None:
    gate_up, down = matrices(torch.float32)
    with pytest.raises(ValueError, match="6 matrices of 2 experts"):
        cpu_set(name).pack_experts(gate_up, down, HeldExperts((0, 1), NUM_EXPERTS))
