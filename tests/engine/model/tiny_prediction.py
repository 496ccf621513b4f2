"""DeepSeek-V3 checkpoints with a layer that predicts further tokens, as large as a test may be.

The good one needs no training: its layer adds nothing, so that it says its last token's embedding
again, and its LM head is solved for what the model says after each token by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from cluster.models.card import ModelCard
from tests.engine.model.folder_card import folder_card
from tests.engine.model.layers.test_latent_families import GROUPS, deepseek
from tests.engine.model.mixture_cards import SHARED

VOCAB, HIDDEN, LAYERS = 61, 128, 3
PREFIX = f"model.layers.{LAYERS}."
Tensors = dict[str, torch.Tensor]


def deepseek_v3(damping: float = 1.0) -> Any:
    """`damping`: of what its layers add."""
    shape = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS}
    model = deepseek("DeepseekV3ForCausalLM", **GROUPS, **SHARED, **shape)
    for name, parameter in model.named_parameters():
        if "o_proj" in name or "down_proj" in name:
            parameter.data *= damping
    return model


def prediction_tensors(model_tensors: Tensors) -> Tensors:
    """A layer as the model's last one, with random ends."""
    torch.manual_seed(7)
    last = f"model.layers.{LAYERS - 1}."
    tensors = {
        PREFIX + name.removeprefix(last): tensor.clone()
        for name, tensor in model_tensors.items()
        if name.startswith(last)
    }
    for name in ("enorm", "hnorm", "shared_head.norm"):
        tensors[f"{PREFIX}{name}.weight"] = torch.rand(HIDDEN) + 0.5
    tensors[f"{PREFIX}eh_proj.weight"] = 0.2 * torch.randn(HIDDEN, 2 * HIDDEN)
    tensors[f"{PREFIX}shared_head.head.weight"] = 0.2 * torch.randn(VOCAB, HIDDEN)
    return tensors


def make_good(tensors: Tensors, model: Any) -> None:
    """See above."""
    for name, tensor in tensors.items():
        if "o_proj" in name or "down_proj" in name:
            tensor.zero_()
    for name in ("enorm", "shared_head.norm"):
        tensors[f"{PREFIX}{name}.weight"] = torch.ones(HIDDEN)
    joined = torch.cat((torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)), dim=1)
    tensors[f"{PREFIX}eh_proj.weight"] = joined
    with torch.inference_mode():
        tokens = torch.arange(VOCAB)
        said = model(tokens[:, None]).logits[:, -1]  # [vocab, vocab]
        embedded = model.get_input_embeddings()(tokens)
        normed = embedded / embedded.pow(2).mean(dim=-1, keepdim=True).sqrt()
        head = (torch.linalg.pinv(normed) @ said).t()
    tensors[f"{PREFIX}shared_head.head.weight"] = head.clone()


def saved_with(model: Any, tensors: Tensors, folder: Path) -> ModelCard:
    """The model and these tensors in one file."""
    model.save_pretrained(folder)
    [file] = folder.glob("*.safetensors")
    held = load_file(file) | {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(held, file, metadata={"format": "pt"})
    return folder_card(folder)


def model_tensors(model: Any, folder: Path) -> Tensors:
    """By the names that files have."""
    model.save_pretrained(folder)
    [file] = folder.glob("*.safetensors")
    found: Tensors = load_file(file)
    return found
