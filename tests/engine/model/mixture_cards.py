"""Tiny random mixtures of every family, and prompts for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.models.card import ModelCard
from tests.engine.model.family_models import VOCAB, random_model, saved_card
from tests.engine.model.layers import test_latent_families, test_mixture_families
from tests.engine.model.layers.test_latent_families import GROUPS, deepseek
from tests.engine.model.parity import random_prompts

PROMPTS = random_prompts((31, 14, 1), VOCAB)
SHARED = {"n_shared_experts": 2}
MIXTURES: dict[str, tuple[str, dict[str, Any]]] = test_mixture_families.FAMILIES
LATENTS: dict[str, tuple[str, dict[str, Any]]] = test_latent_families.FAMILIES


def card_of(family: str, folder: Path) -> ModelCard:
    """Of any family of mixtures; DeepSeek's with shared experts."""
    if family in MIXTURES:
        architecture, changes = MIXTURES[family]
        return saved_card(random_model(architecture, **changes), folder)
    architecture, changes = LATENTS[family]
    return saved_card(deepseek(architecture, **{**changes, **SHARED}), folder)


def deepseek_card(folder: Path) -> ModelCard:
    """Eight experts, three of them for each row, one dense layer, shared experts."""
    return saved_card(deepseek("DeepseekV3ForCausalLM", **GROUPS, **SHARED), folder)
