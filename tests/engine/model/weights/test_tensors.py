"""The table of tensors against what transformers makes of the same configuration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from cluster.models.footprint import parameters
from cluster.models.gguf.tensor_names import from_gguf_name, to_gguf_name
from cluster.models.tensors import expected_shapes
from engine.model.weights.mixtral_names import common_name
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.model.layers import test_latent_families, test_mixture_families
from tests.engine.model.layers.test_latent_families import LATENT

DENSE = ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Gemma3ForCausalLM"]
LATENTS = {
    name: (kind, {**LATENT, **changes})
    for name, (kind, changes) in test_latent_families.FAMILIES.items()
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in DENSE},
    **test_mixture_families.FAMILIES,
    **LATENTS,
}


def stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    return {common_name(name): tuple(tensor.shape) for name, tensor in load_file(path).items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_names_shapes_and_count_are_those_of_the_saved_checkpoint(
    family: str, tmp_path: Path
) -> None:
    architecture, changes = FAMILIES[family]
    card = saved_card(random_model(architecture, **changes), tmp_path)
    stored = stored_shapes(card.weight_files[0])
    assert expected_shapes(card.config) == stored
    assert parameters(card.config).total == sum(map(math.prod, stored.values()))


@pytest.mark.parametrize("family", DENSE)
def test_every_tensor_of_a_dense_decoder_has_a_name_in_gguf_and_back(
    family: str, tmp_path: Path
) -> None:
    config = saved_card(random_model(family), tmp_path).config
    normed = config.has_post_norms
    theirs = {ours: to_gguf_name(ours, has_post_norms=normed) for ours in expected_shapes(config)}
    assert len(set(theirs.values())) == len(theirs)
    for ours, name in theirs.items():
        assert from_gguf_name(name, has_post_norms=normed) == ours
