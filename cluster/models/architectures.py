"""Every architecture that is run, in either format."""

from __future__ import annotations

from cluster.errors import UnsupportedModel
from cluster.models.card import CheckpointFormat, ModelCard
from cluster.models.gguf import config as gguf_config
from cluster.models.hf import config as hf_config


def supported_architectures(format: CheckpointFormat) -> tuple[str, ...]:
    """The checkpoints' own words."""
    readers = gguf_config.READERS if format is CheckpointFormat.GGUF else hf_config.READERS
    return tuple(readers)


def require_architecture(card: ModelCard) -> None:
    """Raises UnsupportedModel by name, with what is supported."""
    supported = supported_architectures(card.format)
    if card.architecture not in supported:
        raise UnsupportedModel(
            f"{card.name} has the architecture {card.architecture!r}; supported: "
            f"{', '.join(supported)}"
        )
