"""GGUF blocks as groups against the gguf package's own reading, on random bytes."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from cluster.models.gguf.types import GROUPS
from engine.model.weights.dequantize import dequantize
from engine.model.weights.gguf_blocks import FORMATS, grouped
from engine.model.weights.open_checkpoint import open_checkpoint
from kernels.weights import GroupedWeight, plain
from tests.engine.model.tiny_llama import random_model, tiny_config
from tests.engine.model.weights.test_weights import write_gguf

SCALES_AT = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}
"""Bytes of the float16 values of a block; the rest may be any bytes."""


def random_blocks(kind: str, rows: int = 24, blocks: int = 3) -> np.ndarray:
    """uint8 [rows, bytes]."""
    generator = np.random.default_rng(len(kind) + FORMATS[kind].num_bytes)
    raw = generator.integers(0, 256, (rows * blocks, FORMATS[kind].num_bytes), dtype=np.uint8)
    for at in SCALES_AT[kind]:
        halves = generator.normal(size=(rows * blocks, 1)).astype(np.float16)
        raw[:, at : at + 2] = halves.view(np.uint8)
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("kind", FORMATS)
def test_groups_are_exactly_what_the_gguf_package_reads(kind: str) -> None:
    raw = random_blocks(kind)
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    flat = torch.from_numpy(raw.copy()).flatten()
    weight = grouped(flat, kind, expected.shape)
    assert (weight.bits, weight.group) == GROUPS[kind]
    assert int(weight.values.max()) == 2**weight.bits - 1
    assert np.array_equal(weight.dequantize().numpy(), expected)
    assert np.array_equal(dequantize(flat, kind).numpy(), expected.reshape(-1))


def test_the_table_of_sizes_is_that_of_the_gguf_package() -> None:
    for kind, form in FORMATS.items():
        sizes = gguf.constants.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        assert sizes == (form.block, form.num_bytes)
    assert FORMATS.keys() == GROUPS.keys()


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q8_0", "F16"])
def test_rows_of_q_and_k_are_put_in_order_in_groups_too(kind: str, tmp_path: Path) -> None:
    quantization = gguf.GGMLQuantizationType[kind]
    card = write_gguf(random_model(tiny_config()), tmp_path / "m.gguf", quantization)
    checkpoint = open_checkpoint(card)
    matrices = [name for name in checkpoint.names() if len(checkpoint.shape(name)) == 2]
    assert sum(".q_proj." in name or ".k_proj." in name for name in matrices) == 6
    for name in matrices:
        weight = checkpoint.read_weight(name)
        assert isinstance(weight, GroupedWeight) is (kind in FORMATS)
        assert torch.equal(plain(weight), checkpoint.read(name))
