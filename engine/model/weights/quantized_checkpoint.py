"""A quantized safetensors checkpoint, its matrices under their plain names.

    model.layers.0.mlp.up_proj.qweight, .qzeros, .scales, .g_idx  ->  ....up_proj.weight

A module is quantized if its tensors say so; the others (LM head, router gates, embedding) are read
as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import torch

from cluster.models.card import QuantizationConfig, QuantMethod
from cluster.models.tensor_part import WHOLE, TensorPart
from engine.model.weights.awq import AwqLayout
from engine.model.weights.checkpoint import Checkpoint
from engine.model.weights.compressed_tensors import CompressedTensorsLayout
from engine.model.weights.fp8 import Fp8Layout
from engine.model.weights.gptq import GptqLayout
from engine.model.weights.stored_matrix import StoredLayout, StoredMatrix
from kernels.weights import Weight, plain

_OF_KV_CACHE = frozenset({"k_scale", "v_scale", "kv_scale"})
"""Scales for a cache in 8-bit floats; ours has its own, for each row."""


class QuantizedCheckpoint:
    """A `Checkpoint` over the one that holds the stored tensors."""

    def __init__(
        self, stored: Checkpoint, quantization: QuantizationConfig, expected: Collection[str]
    ) -> None:
        """`expected` are the names that the model's configuration asks for."""
        self._stored = stored
        self._layout = layout_of(quantization)
        self._matrices = self._find_matrices()
        hidden = {name for matrix in self._matrices.values() for name in matrix.names.values()}
        others = {name for name in stored.names() - hidden if _leaf(name) not in _OF_KV_CACHE}
        self._plain = frozenset(n for n in others if n in expected or not self._is_filler(n))

    def names(self) -> frozenset[str]:
        """As the unquantized model's."""
        return self._plain | self._matrices.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the matrix, not of what it is stored as."""
        matrix = self._matrices.get(name)
        return self._stored.shape(name) if matrix is None else self._layout.shape(matrix)

    def inputs_per_scale(self, name: str) -> int | None:
        """Of the stored scales."""
        matrix = self._matrices.get(name)
        return None if matrix is None else self._layout.inputs_per_scale(matrix)

    def read(self, name: str, part: TensorPart = WHOLE) -> torch.Tensor:
        """Dequantized matrices are float32."""
        return plain(self.read_weight(name, part))

    def read_weight(self, name: str, part: TensorPart = WHOLE) -> Weight:
        """In the checkpoint's groups or 8-bit floats."""
        matrix = self._matrices.get(name)
        if matrix is None:
            return self._stored.read(name, part)
        return self._layout.read(matrix, part)

    def _find_matrices(self) -> dict[str, StoredMatrix]:
        """By plain name."""
        modules: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for name in self._stored.names():
            if _leaf(name) in self._layout.suffixes:
                modules[name.rpartition(".")[0]][_leaf(name)] = name
        return {
            f"{module}.weight": StoredMatrix(module, names, self._stored)
            for module, names in modules.items()
            if self._layout.recognizes(names)
        }

    def _is_filler(self, name: str) -> bool:
        """A bias of zeros: AutoGPTQ gives one to every matrix."""
        module, _, leaf = name.rpartition(".")
        is_bias = leaf == "bias" and f"{module}.weight" in self._matrices
        return is_bias and not self._stored.read(name).any()


def layout_of(quantization: QuantizationConfig) -> StoredLayout:
    """The reader of what the card describes."""
    if quantization.is_float:
        return Fp8Layout(quantization.block)
    if quantization.method is QuantMethod.GPTQ:
        return GptqLayout(quantization.bits, quantization.zeros_less_one)
    return AwqLayout() if quantization.method is QuantMethod.AWQ else CompressedTensorsLayout()


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
