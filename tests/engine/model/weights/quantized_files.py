"""Matrices as quantizers store them, packed value by value from the formats' public descriptions.

Each function returns the stored tensors by the last part of their names, and the float32 matrix
that they stand for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.cluster.models.conftest import tiny_tokenizer_json

Stored = tuple[dict[str, torch.Tensor], torch.Tensor]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def words(values: torch.Tensor, bits: int) -> torch.Tensor:
    """[rows, n] -> int32 [rows, ceil(n * bits / 32)], the first value in the lowest bits."""
    per_word, rows = 32 // bits, []
    for row in values.tolist():
        row += [0] * (-len(row) % per_word)
        runs = [row[at : at + per_word] for at in range(0, len(row), per_word)]
        packed = [sum(value << (bits * place) for place, value in enumerate(run)) for run in runs]
        rows.append([word - 2**32 if word >= 2**31 else word for word in packed])
    return torch.tensor(rows, dtype=torch.int32)


def quantized(
    matrix: torch.Tensor, bits: int, group_of: torch.Tensor, *, symmetric: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Integers [out, in], float16 scales and integer zero points [out, groups]."""
    top, parts = 2**bits - 1, []
    for group in range(int(group_of.max()) + 1):
        columns = matrix[:, group_of == group]
        low, high = columns.amin(1).clamp(max=0), columns.amax(1).clamp(min=0)
        if symmetric:
            high = columns.abs().amax(1) * top / (top - 1)
            low = -high
        scale = ((high - low) / top).half()
        zero = torch.full_like(low, 2 ** (bits - 1)) if symmetric else (-low / scale).round()
        parts.append((scale, zero.int()))
    scales, zeros = (torch.stack(column, 1) for column in zip(*parts, strict=True))
    steps = matrix / scales.float()[:, group_of] + zeros[:, group_of]
    return steps.round().clamp(0, top).int(), scales, zeros


def dequantized(
    integers: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, group_of: torch.Tensor
) -> torch.Tensor:
    return (integers - zeros[:, group_of]).float() * scales.float()[:, group_of]


def runs(inputs: int, group: int | None) -> torch.Tensor:
    """The group of each input where groups are runs."""
    return torch.arange(inputs) // (group or inputs)


def scattered(inputs: int, group: int) -> torch.Tensor:
    """The group of each input in an activation order."""
    order = torch.randperm(inputs, generator=torch.Generator().manual_seed(3))
    return runs(inputs, group)[order]


def gptq(
    matrix: torch.Tensor,
    *,
    bits: int = 4,
    group: int | None = 32,
    version: int = 1,
    group_of: torch.Tensor | None = None,
    symmetric: bool = False,
) -> Stored:
    index = runs(matrix.shape[1], group) if group_of is None else group_of
    integers, scales, zeros = quantized(matrix, bits, index, symmetric=symmetric)
    stored_zeros = (zeros - 1) % 2**bits if version == 1 else zeros
    tensors = {
        "qweight": words(integers, bits).t().contiguous(),
        "qzeros": words(stored_zeros.t(), bits),
        "scales": scales.t().contiguous(),
        "g_idx": index.int(),
    }
    return tensors, dequantized(integers, scales, zeros, index)


def awq(matrix: torch.Tensor, *, group: int | None = 32) -> Stored:
    index = runs(matrix.shape[1], group)
    integers, scales, zeros = quantized(matrix, 4, index)

    def interleaved(by_output: torch.Tensor) -> torch.Tensor:
        """[n, out] -> int32 [n, out / 8]."""
        places = torch.arange(by_output.shape[1]).view(-1, 8)[:, list(AWQ_ORDER)].flatten()
        return words(by_output[:, places], 4)

    tensors = {
        "qweight": interleaved(integers.t()),
        "qzeros": interleaved(zeros.t()),
        "scales": scales.t().contiguous(),
    }
    return tensors, dequantized(integers, scales, zeros, index)


def packed(
    matrix: torch.Tensor,
    *,
    bits: int = 4,
    group: int | None = 32,
    symmetric: bool = True,
    group_of: torch.Tensor | None = None,
) -> Stored:
    """compressed-tensors, "pack-quantized"."""
    index = runs(matrix.shape[1], group) if group_of is None else group_of
    integers, scales, zeros = quantized(matrix, bits, index, symmetric=symmetric)
    tensors = {
        "weight_packed": words(integers, bits),
        "weight_scale": scales,
        "weight_shape": torch.tensor(matrix.shape),
    }
    if not symmetric:
        tensors["weight_zero_point"] = words(zeros.t(), bits).t().contiguous()
    if group_of is not None:
        tensors["weight_g_idx"] = index.int()
    return tensors, dequantized(integers, scales, zeros, index)


def int8_bytes(matrix: torch.Tensor, *, symmetric: bool = True) -> Stored:
    """compressed-tensors, "int-quantized", a scale per output."""
    index = runs(matrix.shape[1], None)
    integers, scales, zeros = quantized(matrix, 8, index, symmetric=symmetric)
    tensors = {"weight": (integers - 128).to(torch.int8), "weight_scale": scales}
    if not symmetric:
        tensors["weight_zero_point"] = (zeros - 128).to(torch.int8)
    return tensors, dequantized(integers, scales, zeros, index)


def fp8(
    matrix: torch.Tensor,
    *,
    block: tuple[int, int] | None = None,
    scale_part: str = "weight_scale",
    scale_shape: tuple[int, ...] | None = None,
    input_scale: float | None = None,
) -> Stored:
    """`block` None: the whole matrix."""
    rows, columns = block or matrix.shape
    grid = (-(-matrix.shape[0] // rows), -(-matrix.shape[1] // columns))
    values = torch.empty_like(matrix, dtype=torch.float8_e4m3fn)
    scales, floats = torch.empty(grid), torch.empty_like(matrix)
    for i in range(grid[0]):
        for j in range(grid[1]):
            place = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            scales[i, j] = matrix[place].abs().max() / 448
            values[place] = (matrix[place] / scales[i, j]).to(torch.float8_e4m3fn)
            floats[place] = values[place].float() * scales[i, j]
    shape = grid if scale_shape is None else scale_shape
    tensors = {"weight": values, scale_part: scales.view(shape)}
    if input_scale is not None:
        tensors["input_scale"] = torch.tensor(input_scale)
    return tensors, floats


def write_folder(
    model: Any, folder: Path, quantization: dict[str, Any], store: Callable[[torch.Tensor], Stored]
) -> None:
    """The model with its layers' matrices stored by `store`, and loaded with what they stand for.

    The embedding, and the LM head where there is one, stay plain.
    """
    tensors: dict[str, torch.Tensor] = {}
    state = model.state_dict()
    for name, tensor in state.items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        if "_proj." not in name or tensor.dim() != 2:
            tensors[name] = tensor.clone()
            continue
        parts, floats = store(tensor)
        tensor.copy_(floats)
        module = name.removesuffix(".weight")
        tensors |= {f"{module}.{part}": stored.contiguous() for part, stored in parts.items()}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    config = {**model.config.to_dict(), "quantization_config": quantization}
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tiny_tokenizer_json()))
