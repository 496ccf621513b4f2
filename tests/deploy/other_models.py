"""Models that differ from the tests' own by a few bytes, and answer every prompt in another way."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from gguf import GGUFReader

from cluster.home import default_home

MODEL = Path("models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
_NORM = "blk.10.ffn_norm.weight"
_TEMPLATE_WORDS = b"You are a helpful AI assistant"


def home_with_other_models(folder: Path) -> Path:
    """A home of models: the tests' own; one of other weights; and one of other weights again and
    with another tokenizer, by its template."""
    own = default_home() / MODEL
    (folder / MODEL).parent.mkdir(parents=True)
    shutil.copyfile(own, folder / MODEL)
    other_weights, other_tokenizer = folder / "weights.gguf", folder / "tokenizer.gguf"
    for copy, factor in ((other_weights, 1.5), (other_tokenizer, 0.5)):
        shutil.copyfile(own, copy)
        _scale(copy, factor)
    _change_template(other_tokenizer)
    return folder


def _scale(path: Path, factor: float) -> None:
    (norm,) = (tensor for tensor in GGUFReader(path, "r+").tensors if tensor.name == _NORM)
    assert norm.data.dtype == np.float32
    norm.data[:] *= factor
    norm.data.flush()


def _change_template(path: Path) -> None:
    content = path.read_bytes()
    assert content.count(_TEMPLATE_WORDS) == 1
    path.write_bytes(content.replace(_TEMPLATE_WORDS, _TEMPLATE_WORDS.upper()))
