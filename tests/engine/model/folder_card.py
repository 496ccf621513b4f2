"""A saved checkpoint's card."""

from __future__ import annotations

import json
from pathlib import Path

from cluster.models.card import CheckpointFormat, ModelCard
from cluster.models.hf.config import decoder_of_hf


def folder_card(folder: Path) -> ModelCard:
    """As the model store would make it."""
    values = json.loads((folder / "config.json").read_text())
    architecture, config = decoder_of_hf(values, "config.json")
    files = tuple(sorted(folder.glob("*.safetensors")))
    return ModelCard(
        name="tiny",
        source=str(folder),
        format=CheckpointFormat.SAFETENSORS,
        weight_files=files,
        metadata_path=folder,
        architecture=architecture,
        config=config,
        checkpoint_dtype="float32",
        weights_digest="00",
        tokenizer_digest="00",
        eos_token_ids=(),
        bos_token_id=None,
        weight_bytes=sum(path.stat().st_size for path in files),
    )
