"""Adapters beside products: the native and the Triton versions against the reference."""

from __future__ import annotations

import pytest
import torch

from kernels.adapters import AdapterPart, AdapterSite
from kernels.dispatch.kernel_sets import REFERENCE
from tests.kernels.kernel_sets import CPU_SETS, DTYPES, cpu_set, random, tolerance
from tests.kernels.triton_places import PLACES, Place
from tests.kernels.triton_places import kernels as triton_kernels

RANKS = (8, 16, 3, 1, 300)
"""Of the adapters in slots 1, 2, ...; slot 0 is nobody's. The last is larger than any that a fleet
takes: what is laid aside for a row goes by the site, not by a number of the kernel's own."""
SHAPES = [(96, (96, 32, 32)), (64, (100,)), (40, (24, 24))]
MODEL_SHAPES = [(4096, (4096, 1024, 1024)), (14336, (4096,)), (896, (4864, 4864))]
"""Llama 3 8B's attention and feed-forward; Qwen 2.5 0.5B's, which are no multiples of a tile."""
SLOTS = {
    "one row": [2],
    "decodes": [1, 0, 2, 1, 3, 0, 5, 2, 1, 4, 4, 0],
    "one adapter": [5] * 9,
    "prompts": [1] * 19 + [0] * 7 + [4] * 33 + [5] * 2,
    "none": [0] * 4,
}


def site(inputs: int, widths: tuple[int, ...], dtype: torch.dtype) -> AdapterSite:
    """Runs in another order than slots; the last part's second adapter has nothing there."""
    starts, total = [0], 0
    for rank in RANKS:
        starts.append(total)
        total += rank
    parts, column = [], 0
    for at, width in enumerate(widths):
        ranks = torch.tensor([0, *RANKS], dtype=torch.int32)
        if at and at == len(widths) - 1:
            ranks[2] = 0
        down = random(total, inputs, dtype=torch.float32, seed=at) / inputs**0.5
        up = random(total, width, dtype=torch.float32, seed=10 + at) / 16
        parts.append(
            AdapterPart(down=down.to(dtype), up=up.to(dtype), lora_ranks=ranks, first_column=column)
        )
        column += width
    return AdapterSite(
        parts=tuple(parts),
        starts=torch.tensor(starts, dtype=torch.int32),
        max_lora_rank=max(RANKS),
    )


def rows_of(
    name: str, inputs: int, widths: tuple[int, ...], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    slots = torch.tensor(SLOTS[name], dtype=torch.int32)
    x = random(len(slots), inputs, dtype=dtype, seed=3)
    out = random(len(slots), sum(widths) + 4, dtype=dtype, seed=4)
    return x, out, slots, 1 if name != "prompts" else 33


def test_the_reference_adds_each_rows_own_matrices() -> None:
    x, out, slots, longest = rows_of("decodes", 96, (96, 32, 32), torch.float32)
    given, expected = site(96, (96, 32, 32), torch.float32), out.clone()
    for row, slot in enumerate(slots.tolist()):
        for part in given.parts:
            run = slice(
                int(given.starts[slot]), int(given.starts[slot]) + int(part.lora_ranks[slot])
            )
            columns = slice(part.first_column, part.first_column + part.up.shape[1])
            expected[row, columns] += x[row] @ (part.up[run].T @ part.down[run]).T
    REFERENCE.add_adapters(x, out, slots, given, longest)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CPU_SETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inputs", "widths"), SHAPES)
@pytest.mark.parametrize("slots", SLOTS)
def test_every_version_is_that_of_the_reference(
    slots: str, inputs: int, widths: tuple[int, ...], dtype: torch.dtype, name: str
) -> None:
    x, out, of_rows, longest = rows_of(slots, inputs, widths, dtype)
    given, expected, before = site(inputs, widths, dtype), out.clone(), out.clone()
    REFERENCE.add_adapters(x, expected, of_rows, given, longest)
    cpu_set(name).add_adapters(x, out, of_rows, given, longest)
    torch.testing.assert_close(out, expected, **tolerance(dtype))
    assert torch.equal(out[of_rows == 0], before[of_rows == 0])
    assert torch.equal(out[:, sum(widths) :], before[:, sum(widths) :])


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(dtype: torch.dtype) -> None:
    inputs, widths = SHAPES[0]
    x, out, slots, longest = rows_of("prompts", inputs, widths, dtype)
    given, alone = site(inputs, widths, dtype), out.clone()
    order = torch.randperm(len(slots), generator=torch.Generator().manual_seed(1))
    mixed, kernel = out[order].contiguous(), cpu_set("native").add_adapters
    kernel(x, out, slots, given, longest)
    kernel(x[order].contiguous(), mixed, slots[order].contiguous(), given, 1)
    for row in range(len(slots)):
        kernel(x[row : row + 1], alone[row : row + 1], slots[row : row + 1], given, 1)
    assert torch.equal(alone, out)
    assert torch.equal(mixed, out[order])


@pytest.mark.parametrize("name", CPU_SETS)
def test_as_many_rows_may_have_other_adapters_than_those_before(name: str) -> None:
    inputs, widths = SHAPES[0]
    given = site(inputs, widths, torch.float32)
    for slots in ([1, 2, 0, 3], [1, 2, 4, 3], [0, 0, 0, 0], [3, 2, 4, 1]):
        x = random(4, inputs, dtype=torch.float32, seed=3)
        out = random(4, sum(widths), dtype=torch.float32, seed=4)
        expected, of_rows = out.clone(), torch.tensor(slots, dtype=torch.int32)
        REFERENCE.add_adapters(x, expected, of_rows, given, 1)
        cpu_set(name).add_adapters(x, out, of_rows, given, 1)
        torch.testing.assert_close(out, expected, **tolerance(torch.float32))


@pytest.mark.parametrize("name", CPU_SETS)
def test_rows_of_another_width_are_refused(name: str) -> None:
    given = site(96, (96,), torch.float32)
    slots = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ValueError, match="x has shape"):
        cpu_set(name).add_adapters(torch.zeros(2, 95), torch.zeros(2, 96), slots, given, 1)
    with pytest.raises(ValueError, match="out has width 95"):
        cpu_set(name).add_adapters(torch.zeros(2, 96), torch.zeros(2, 95), slots, given, 1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("inputs", "widths"), SHAPES)
@pytest.mark.parametrize("slots", SLOTS)
def test_tritons_versions_are_that_of_the_reference(
    slots: str, inputs: int, widths: tuple[int, ...], place: Place
) -> None:
    check_triton(slots, inputs, widths, place)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("inputs", "widths"), MODEL_SHAPES)
@pytest.mark.parametrize("slots", SLOTS)
def test_on_a_gpu_they_are_so_in_the_sizes_of_models(
    slots: str, inputs: int, widths: tuple[int, ...], dtype: torch.dtype
) -> None:
    """For which the interpreter would take minutes. Never run yet."""
    check_triton(slots, inputs, widths, ("cuda", dtype))


def check_triton(slots: str, inputs: int, widths: tuple[int, ...], place: Place) -> None:
    device, dtype = place
    x, out, of_rows, longest = rows_of(slots, inputs, widths, dtype)
    given, expected, before = site(inputs, widths, dtype), out.clone(), out.clone()
    REFERENCE.add_adapters(x, expected, of_rows, given, longest)
    there = AdapterSite(
        parts=tuple(
            AdapterPart(
                down=part.down.to(device),
                up=part.up.to(device),
                lora_ranks=part.lora_ranks.to(device),
                first_column=part.first_column,
            )
            for part in given.parts
        ),
        starts=given.starts.to(device),
        max_lora_rank=given.max_lora_rank,
    )
    ours = out.to(device)
    triton_kernels().add_adapters(x.to(device), ours, of_rows.to(device), there, longest)
    torch.testing.assert_close(ours.cpu(), expected, **tolerance(dtype))
    assert torch.equal(ours.cpu()[of_rows == 0], before[of_rows == 0])
