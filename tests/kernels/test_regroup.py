"""Groups made wider: exact where they agree, within half of a step elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.regroup import regroup
from kernels.weight_rows import with_groups_of
from kernels.weights import GroupedWeight


def groups_of_16(outputs: int = 24, inputs: int = 128, bits: int = 6) -> GroupedWeight:
    generator = torch.Generator().manual_seed(bits)
    shape = (outputs, inputs // 16)
    scales = torch.randn(*shape, generator=generator)  # negative ones too, as in Q6_K
    values = torch.randint(0, 2**bits, (outputs, inputs), generator=generator, dtype=torch.uint8)
    return GroupedWeight(
        values=values, scales=scales, minimums=-32 * scales, bits=bits, dtype=torch.float32
    )


@pytest.mark.parametrize("group", [32, 64, 128])
def test_a_value_moves_by_at_most_half_of_a_step(group: int) -> None:
    weight = groups_of_16()
    wide = regroup(weight, group)
    assert (wide.group, wide.bits, wide.dtype) == (group, 8, torch.float32)
    exact = weight.dequantize().view(24, -1, group)
    step = (exact.amax(-1) - exact.amin(-1)) / 255
    moved = (wide.dequantize().view(24, -1, group) - exact).abs().amax(-1)
    assert bool((moved <= 0.5001 * step).all())  # and the rounding of float32
    assert bool((moved > 0).any())


def test_groups_that_agree_keep_their_numbers() -> None:
    weight = groups_of_16()
    pairs = replace(
        weight,
        scales=weight.scales[:, ::2].repeat_interleave(2, 1),
        minimums=weight.minimums[:, ::2].repeat_interleave(2, 1),
    )
    wide = regroup(pairs)
    assert torch.equal(wide.values, pairs.values)
    assert torch.equal(wide.dequantize(), pairs.dequantize())
    assert torch.equal(with_groups_of(wide, 16).scales, pairs.scales)


def test_a_constant_group_stays_constant() -> None:
    weight = groups_of_16()
    constant = replace(weight, values=torch.zeros_like(weight.values), scales=weight.scales * 0 + 1)
    flat = replace(constant, minimums=torch.full_like(weight.minimums, 0.5))
    flat = replace(flat, scales=torch.arange(1.0, 9.0).expand(24, 8).contiguous())
    assert torch.equal(regroup(flat).dequantize(), flat.dequantize())


def test_groups_of_the_wanted_width_are_left_alone() -> None:
    weight = groups_of_16()
    assert regroup(weight, 16) is weight


@pytest.mark.parametrize(("group", "says"), [(24, "do not fill"), (96, "128 inputs in groups")])
def test_a_width_that_does_not_fit_is_refused(group: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        regroup(groups_of_16(), group)
