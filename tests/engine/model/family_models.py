"""Random checkpoints of the real architecture classes, a few thousand parameters each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from cluster.models.card import ModelCard
from tests.engine.model.folder_card import folder_card

VOCAB = 97
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
}


def random_model(architecture: str, **changes: Any) -> Any:
    """In float32; norms and biases are random too."""
    kind = getattr(transformers, architecture)
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**_SHAPE, **changes})).eval()
    low, high = (-0.5, 0.5) if architecture.startswith("Gemma") else (0.5, 1.5)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data.uniform_(low, high)
        elif "bias" in name:
            parameter.data.uniform_(-0.5, 0.5)
    return model


def saved_card(model: Any, folder: Path) -> ModelCard:
    """Saves as safetensors; the card is read from the config.json that transformers wrote."""
    model.save_pretrained(folder)
    return folder_card(folder)
