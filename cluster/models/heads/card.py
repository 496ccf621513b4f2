"""What is known of a checkpoint of heads before any weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cluster.models.card import DecoderConfig

_FROM_END = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsConfig:
    """The shape of an EAGLE-3 head (Li et al., 2025): one layer over what the target's layers say.

    Of a token it reads the states that came into some layers of the target at the token before it,
    made one by `fc`, beside its embedding; its own output is what it reads of its guesses.
    """

    layer: DecoderConfig
    """Of one layer, whose queries, keys and values are of twice `hidden_size` inputs. `vocab_size`
    and `max_context_tokens` are the target's."""
    draft_vocab_size: int
    """Tokens that it may guess."""
    target_hidden_size: int | None = None
    """None: it is not stated."""
    layers_read: tuple[int, ...] | None = None
    """Of the target, whose input is read, counted from the embedding; None: see `layers_of`."""
    norms_before_residual: bool = False
    """What is added to the residual: the state after its norm, not before."""
    layer_prefix: str = "midlayer."
    """Of the names of the layer's tensors."""

    def layers_of(self, num_layers: int) -> tuple[int, ...]:
        """Those read of a target with so many: where nothing is stated an early one, the middle one
        and a late one, as the paper has it."""
        if self.layers_read is not None:
            return self.layers_read
        return (2, num_layers // 2, num_layers - _FROM_END)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsCard:
    """A folder with config.json and safetensors."""

    name: str
    source: str
    """As the user wrote it."""
    weight_files: tuple[Path, ...]
    architecture: str
    """The checkpoint's own word."""
    config: HeadsConfig
    weights_digest: str
    """As a ModelCard's: equal means equal guesses over equal states."""
    weight_bytes: int
    """Size of the weight files."""
