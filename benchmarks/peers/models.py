"""The one set of weights that all systems run, in the forms that they read."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.peers.contestant import HERE, home, python_of
from cluster.models.cache.store import ModelStore


def gguf_path() -> Path:
    """SmolLM2-135M-Instruct, as it is served by default."""
    return ModelStore().resolve("smollm2").weight_files[0]


def safetensors_folder() -> Path | None:
    """The same weights dequantized to bfloat16; made when missing, None where vLLM is."""
    python = python_of("vllm")
    if python is None:
        return None
    folder = home() / "smollm2-bf16"
    if not (folder / "tokenizer.json").exists():
        script = HERE / "to_safetensors.py"
        subprocess.run([python, script, gguf_path(), folder], check=True)
    return folder
