from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from cluster.errors import BadCheckpoint, ModelError, UnsupportedModel
from cluster.models.card import ModelCard
from cluster.models.gguf.config import decoder_of_gguf
from cluster.models.gguf.header import read_gguf_header


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _start(num_tensors: int = 0, num_pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_pairs)


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def test_the_header_is_what_the_gguf_package_reads(smollm2: ModelCard) -> None:
    ours = read_gguf_header(smollm2.metadata_path)
    theirs = gguf.GGUFReader(smollm2.metadata_path)
    expected = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert ours.metadata == expected
    assert {t.name: (t.type_name, t.offset, t.num_bytes) for t in ours.tensors.values()} == {
        t.name: (t.tensor_type.name, t.data_offset, t.n_bytes) for t in theirs.tensors
    }
    assert ours.tensors["token_embd.weight"].shape == (49152, 576)


def test_a_file_cut_anywhere_is_called_truncated(tiny_gguf: Any, tmp_path: Path) -> None:
    whole = tiny_gguf.write(tmp_path / "whole.gguf").read_bytes()
    cuts = [0, 3, 23, 24, 25, len(whole) - 1, *random.Random(1).sample(range(len(whole)), 60)]
    for cut in cuts:
        with pytest.raises(BadCheckpoint, match="GGUF|truncated"):
            read_gguf_header(_write(tmp_path / "cut.gguf", whole[:cut]))


def test_a_damaged_header_ends_in_a_model_error_and_nothing_else(
    tiny_gguf: Any, tmp_path: Path
) -> None:
    whole = bytearray(tiny_gguf.write(tmp_path / "whole.gguf").read_bytes())
    start = min(t.offset for t in read_gguf_header(tmp_path / "whole.gguf").tensors.values())
    dice, refused = random.Random(2), 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(start)] = dice.randrange(256)
        try:
            decoder_of_gguf(read_gguf_header(_write(tmp_path / "bad.gguf", bytes(damaged))))
        except ModelError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04" + bytes(40), "does not start with GGUF"),
        (_start(num_pairs=2**63), "metadata pairs"),
        (_start(num_tensors=2**40), "tensors"),
        (_start(num_pairs=1) + _string(b"k") + struct.pack("<IQ", 8, 2**62), "truncated"),
        (_start(num_pairs=1) + _string(b"k") + struct.pack("<IIQ", 9, 8, 2**60), "more than"),
        (_start(num_pairs=1) + _string(b"k") + struct.pack("<IIQ", 9, 4, 2**60), "truncated"),
        (_start(num_pairs=1) + _string(b"k") + struct.pack("<IIQ", 9, 9, 1), "array of type 9"),
        (_start(num_pairs=1) + _string(b"k") + struct.pack("<I", 77), "unknown type 77"),
        (_start(num_pairs=1) + struct.pack("<Q", 2**40) + bytes(16), "name of"),
        (_start(num_pairs=1) + _string(b"\xff\xfe") + bytes(8), "not UTF-8"),
        (_start(num_tensors=1) + _string(b"t") + struct.pack("<I", 9) + bytes(99), "9 dimensions"),
        (
            _start(num_tensors=1) + _string(b"t") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0),
            "shape",
        ),
        (_start(num_tensors=1) + _string(b"t") + struct.pack("<IQIQ", 1, 33, 3, 0), "multiple"),
        (
            _start(num_pairs=2) + (_string(b"k") + struct.pack("<II", 4, 1)) * 2,
            "appears twice",
        ),
        (
            _start(num_pairs=1) + _string(b"general.alignment") + struct.pack("<II", 4, 3),
            "power of two",
        ),
    ],
)
def test_hostile_headers_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(BadCheckpoint, match=message):
        read_gguf_header(_write(tmp_path / "hostile.gguf", content))


def test_foreign_versions_and_types_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="version 9"):
        read_gguf_header(_write(tmp_path / "new.gguf", _start(version=9) + bytes(8)))
    tensor = _start(num_tensors=1) + _string(b"t") + struct.pack("<IQIQ", 1, 32, 999, 0)
    with pytest.raises(UnsupportedModel, match="999"):
        read_gguf_header(_write(tmp_path / "type.gguf", tensor))


def test_a_folder_or_a_missing_file_is_a_bad_checkpoint(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.gguf"):
        with pytest.raises(BadCheckpoint, match="cannot read"):
            read_gguf_header(path)


def test_scalars_of_every_type_are_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "types.gguf", "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -300)
    writer.add_int32("i32", -70000)
    writer.add_uint64("u64", 2**63)
    writer.add_int64("i64", -(2**40))
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_array("floats", [0.5, 1.5])
    writer.add_tensor("t", np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = read_gguf_header(tmp_path / "types.gguf").metadata
    del metadata["general.architecture"]
    assert metadata == {
        "u8": 200,
        "i8": -3,
        "u16": 60000,
        "i16": -300,
        "i32": -70000,
        "u64": 2**63,
        "i64": -(2**40),
        "f64": 0.1,
        "yes": True,
        "floats": [0.5, 1.5],
    }
