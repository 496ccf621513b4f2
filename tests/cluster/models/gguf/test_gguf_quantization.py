"""How a GGUF's matrices are quantized, from its header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard, QuantizationConfig, QuantMethod
from cluster.models.gguf.header import GgufHeader, GgufTensor
from cluster.models.gguf.quantization import loaded_bytes_of, quantization_of_gguf


def header(**types: str) -> GgufHeader:
    """Tensors of one size each; "__" stands for "."."""
    tensors = {
        name.replace("__", "."): GgufTensor(name.replace("__", "."), (32, 256), kind, 0, 8192)
        for name, kind in types.items()
    }
    return GgufHeader(Path("m.gguf"), {}, tensors)


def test_the_default_model_has_4_bit_layers(smollm2: ModelCard) -> None:
    assert smollm2.quantization == QuantizationConfig(method=QuantMethod.GGUF, bits=4, group=32)


def test_the_commonest_type_of_the_layers_counts() -> None:
    found = quantization_of_gguf(
        header(
            token_embd__weight="F16",
            blk__0__attn_q__weight="Q6_K",
            blk__0__attn_k__weight="Q6_K",
            blk__0__attn_v__weight="Q8_0",
        )
    )
    assert found == QuantizationConfig(method=QuantMethod.GGUF, bits=6, group=16)


def test_a_type_without_groups_is_no_quantization() -> None:
    assert quantization_of_gguf(header(blk__0__attn_q__weight="IQ4_XS")) is None
    assert quantization_of_gguf(header()) is None


def test_a_file_of_floats_is_not_quantized(tiny_gguf: Any, tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "m.gguf")
    assert ModelStore(tmp_path / "home").show(str(path)).quantization is None


def test_wide_groups_are_counted_with_what_loading_adds() -> None:
    values = 32 * 256
    assert loaded_bytes_of(header(blk__0__attn_q__weight="Q4_0")) == values * 5 // 8
    assert loaded_bytes_of(header(blk__0__attn_q__weight="Q6_K")) == values * 9 // 8
    assert loaded_bytes_of(header(token_embd__weight="F16")) == values * 2
