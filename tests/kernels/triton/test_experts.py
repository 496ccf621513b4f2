"""Routing and routed experts against the reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.experts import GroupRank, HeldExperts, RoutingRule, ScoreFunction
from kernels.fp8 import quantize_fp8
from kernels.reference.experts import ReferenceExperts
from kernels.reference.route_experts import route_experts as reference_route
from kernels.triton.align_pairs import PairTiles, align_pairs
from kernels.triton.expert_pairs import PairAssignment
from kernels.triton.expert_tiles import FEW_ROWS, expert_tiles, pair_counts
from kernels.triton.experts import TritonExperts
from kernels.triton.route_experts import route_experts
from kernels.triton.stacked_weights import stack
from kernels.weights import Fp8Weight, GroupedWeight, Weight
from tests.kernels.kernel_sets import random
from tests.kernels.triton_places import DEVICES, PLACES, Place

RULES = {
    "Mixtral": (8, RoutingRule(num_chosen=2)),
    "softmax, not normalized": (6, RoutingRule(num_chosen=3, normalizes_weights=False)),
    "DeepSeek-V2": (
        20,
        RoutingRule(
            num_chosen=3,
            normalizes_weights=False,
            scaling_factor=16.0,
            num_groups=5,
            num_chosen_groups=2,
        ),
    ),
    "DeepSeek-V3": (
        32,
        RoutingRule(
            num_chosen=4,
            score=ScoreFunction.SIGMOID,
            scaling_factor=2.5,
            num_groups=8,
            num_chosen_groups=4,
            group_rank=GroupRank.BEST_TWO,
        ),
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_routing_is_that_of_the_reference(rule: str, with_bias: bool, device: str) -> None:
    num_experts, chosen = RULES[rule]
    logits = random(12, num_experts, dtype=torch.float32).to(device) * 2
    bias = random(num_experts, dtype=torch.float32, seed=1).to(device) * 0.1 if with_bias else None
    ids, weights = route_experts(logits, bias, chosen)
    expected_ids, expected_weights = reference_route(logits, bias, chosen)
    assert ids.tolist() == expected_ids.tolist()
    torch.testing.assert_close(weights, expected_weights)
    assert route_experts(logits[:0], bias, chosen)[0].shape == (0, chosen.num_chosen)


@pytest.mark.parametrize("device", DEVICES)
def test_every_pair_is_in_one_tile_of_its_expert(device: str) -> None:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, 5, (700, 2), generator=generator).to(device)
    ids[ids == 3] = 1  # an expert that nobody chose
    tiles = align_pairs(ids, 6, 16)
    seen = []
    for expert, pairs in zip(tiles.experts.tolist(), tiles.pairs.tolist(), strict=True):
        real = [pair for pair in pairs if pair < ids.numel()]
        assert expert < 6 or not real
        assert all(int(ids.flatten()[pair]) == expert for pair in real)
        seen += real
    assert sorted(seen) == list(range(ids.numel()))


def in_groups(shape: tuple[int, int], seed: int, dtype: torch.dtype, device: str) -> GroupedWeight:
    generator = torch.Generator().manual_seed(seed)
    scales = torch.rand((shape[0], shape[1] // 32), generator=generator) * 0.02 + 0.001
    values = torch.randint(0, 16, shape, generator=generator).to(torch.uint8)
    return GroupedWeight(
        values=values.to(device),
        scales=scales.to(device),
        minimums=-8 * scales.to(device),
        bits=4,
        dtype=dtype,
    )


def weight_of(kind: str, shape: tuple[int, int], seed: int, place: Place) -> Weight:
    device, dtype = place
    plain = random(*shape, dtype=torch.float32, seed=seed).to(device) * shape[1] ** -0.5
    if kind == "plain":
        return plain.to(dtype)
    if kind == "int4":
        return in_groups(shape, seed, dtype, device)
    if kind == "int8, groups of 16":
        narrow = in_groups((shape[0], 2 * shape[1]), seed, dtype, device)
        return GroupedWeight(
            values=narrow.values[:, ::2].contiguous() * 16,
            scales=narrow.scales / 16,
            minimums=narrow.minimums,
            bits=8,
            dtype=dtype,
        )
    by_row = quantize_fp8(plain, dtype=dtype)
    if kind == "fp8":
        return by_row
    scales = by_row.scales[:: shape[0]].expand(-(-shape[0] // 32), shape[1] // 32)
    return Fp8Weight(values=by_row.values, scales=scales, block=(32, 32), dtype=dtype)


KINDS = ["plain", "int4", "int8, groups of 16", "fp8", "fp8 in blocks"]


def experts_of(kind: str, place: Place, num_experts: int = 6) -> tuple[list[Weight], list[Weight]]:
    hidden, size = 64, 96
    gate_up = [weight_of(kind, (2 * size, hidden), 10 + e, place) for e in range(num_experts)]
    down = [weight_of(kind, (hidden, size), 50 + e, place) for e in range(num_experts)]
    return gate_up, down


def routed(num_rows: int, place: Place) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Expert 4 is chosen by nobody, expert 2 by everybody."""
    device, dtype = place
    x = random(num_rows, 64, dtype=dtype).to(device)
    logits = random(num_rows, 6, dtype=torch.float32, seed=9).to(device)
    logits[:, 2], logits[:, 4] = 9.0, -9.0
    ids, weights = reference_route(logits, None, RoutingRule(num_chosen=3))
    return x, ids, weights


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("num_rows", "kind"), [*((5, kind) for kind in KINDS), (1, "plain"), (1, "int4")]
)
def test_few_rows_give_what_the_reference_gives(num_rows: int, kind: str, place: Place) -> None:
    check(num_rows, kind, place)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["plain", "int4"])
def test_many_rows_give_what_the_reference_gives(kind: str, place: Place) -> None:
    check(75, kind, place)


def check(num_rows: int, kind: str, place: Place) -> None:
    gate_up, down = experts_of(kind, place)
    x, ids, weights = routed(num_rows, place)
    expected = ReferenceExperts(gate_up, down)(x, ids, weights)
    ours = TritonExperts(gate_up, down)(x, ids, weights)
    assert ours.dtype == x.dtype
    # Packed scales have 11 bits; weights in the reference are rounded to the dtype of x.
    scale = float(expected.abs().max())
    tolerance = 1e-5 if kind == "plain" and x.dtype is torch.float32 else 1e-2
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["plain", "int4"])
@pytest.mark.parametrize("num_rows", [5, 75])
def test_a_rank_gives_the_share_of_its_own_experts(num_rows: int, kind: str, place: Place) -> None:
    gate_up, down = experts_of(kind, place)
    x, ids, weights = routed(num_rows, place)
    for run in (slice(0, 2), slice(2, 6), slice(4, 5)):  # the last one's nobody chose
        share = gate_up[run], down[run], HeldExperts(tuple(range(6)[run]), 6)
        expected = ReferenceExperts(*share)(x, ids, weights)
        ours = TritonExperts(*share)(x, ids, weights)
        scale = float(expected.abs().max())
        tolerance = 1e-5 if kind == "plain" and x.dtype is torch.float32 else 1e-2
        torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("kind", ["plain", "int4", "fp8"])
def test_exchanged_experts_are_as_if_they_had_been_packed_together(kind: str) -> None:
    place = ("cpu", torch.float32)
    gate_up, down = experts_of(kind, place)
    x, ids, weights = routed(5, place)

    def of(*experts: int) -> TritonExperts:
        matrices = [gate_up[e] for e in experts], [down[e] for e in experts]
        return TritonExperts(*matrices, HeldExperts(experts, 6))

    exchanged = of(0, 1, 2).with_experts(HeldExperts((0, 2, 3), 6), [of(5), of(3)])
    assert exchanged.num_bytes == of(0, 2, 3).num_bytes
    assert torch.equal(exchanged(x, ids, weights), of(0, 2, 3)(x, ids, weights))


@pytest.mark.parametrize("place", PLACES)
def test_weights_that_have_no_packed_form_are_dequantized(place: Place) -> None:
    device, dtype = place
    gate_up = [quantize_fp8(random(40, 24, dtype=torch.float32).to(device), dtype=dtype)] * 2
    down = [quantize_fp8(random(24, 20, dtype=torch.float32).to(device), dtype=dtype)] * 2
    experts = TritonExperts(gate_up, down)
    assert experts.num_bytes == 2 * (40 * 24 + 24 * 20) * dtype.itemsize
    x = random(3, 24, dtype=dtype).to(device)
    ids = torch.tensor([[0], [1], [0]], device=device)
    weights = torch.ones(3, 1, device=device)
    expected = ReferenceExperts(gate_up, down)(x, ids, weights)
    limit = 1e-2 * float(expected.abs().max())
    torch.testing.assert_close(experts(x, ids, weights), expected, rtol=1e-2, atol=limit)


def test_no_rows_and_weights_of_different_kinds() -> None:
    place = ("cpu", torch.float32)
    gate_up, down = experts_of("plain", place, 2)
    x, ids, weights = routed(1, place)
    assert TritonExperts(gate_up, down)(x[:0], ids[:0], weights[:0]).shape == (0, 64)
    mixed = [gate_up[0], weight_of("int4", (192, 64), 1, place)]
    with pytest.raises(ValueError, match="expert 1 is stored as"):
        TritonExperts(mixed, down)
    with pytest.raises(ValueError, match="2 gates for 1 downs"):
        TritonExperts(gate_up, down[:1])
    with pytest.raises(ValueError, match=r"x has shape \(1, 60\)"):
        TritonExperts(gate_up, down)(x[:, :60], ids, weights)


def test_weights_are_asked_for_once_each() -> None:
    gate_up, down = experts_of("plain", ("cpu", torch.float32), 3)
    asked: list[int] = []

    class Lazy(list[Weight]):
        def __getitem__(self, index: int) -> Weight:  # type: ignore[override]
            asked.append(index)
            return super().__getitem__(index)

    TritonExperts(Lazy(gate_up), down)
    assert asked == [0, 1, 2]


def kernel_of(num_pairs: int, num_experts: int, *, has_others: bool) -> tuple[Any, ...]:
    """What it is compiled for."""
    ids = torch.zeros(num_pairs, 1, dtype=torch.int64)
    tiles = expert_tiles(num_pairs, num_pairs, num_experts)
    none = torch.empty(0)
    work = PairAssignment(
        ids=ids,
        tiles=tiles,
        sorted=None if num_pairs <= FEW_ROWS else PairTiles(none, none),
        num_experts=num_experts,
        has_others=has_others,
    )
    constants = work.constants(stack([torch.zeros(16, 16)]))
    return tuple(sorted(constants.items()))


@pytest.mark.parametrize("num_experts", [1, 2, 5, 32])
@pytest.mark.parametrize("has_others", [False, True])
def test_a_few_numbers_of_pairs_need_every_kernel_that_any_number_does(
    num_experts: int, has_others: bool
) -> None:
    most = 130 * num_experts
    needed = {kernel_of(n, num_experts, has_others=has_others) for n in range(1, most + 1)}
    counts = pair_counts(num_experts, most)
    assert {kernel_of(n, num_experts, has_others=has_others) for n in counts} == needed
    assert len(counts) <= 12
    assert pair_counts(num_experts, 3) == [1, 2, 3]
