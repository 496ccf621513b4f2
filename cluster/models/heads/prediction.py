"""The layers behind a model's last that predict further tokens (DeepSeek-V3, 2.2): their names.

    model.layers.{L}    an ordinary layer; enorm, hnorm, eh_proj before it, shared_head behind it

Of several the first alone is run, again and again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cluster.models.card import DecoderConfig
from cluster.models.tensors import expected_shapes, layer_prefix

TOKEN_NORM: Final = "enorm.weight"
STATE_NORM: Final = "hnorm.weight"
JOIN: Final = "eh_proj.weight"
FINAL_NORM: Final = "shared_head.norm.weight"
LM_HEAD: Final = "shared_head.head.weight"
EMBEDDING: Final = "embed_tokens.weight"
"""Both ends are the model's own where they are missing."""


def with_prediction_layer(config: DecoderConfig) -> DecoderConfig:
    """The model as if its first such layer were an ordinary one behind the last."""
    return replace(config, num_layers=config.num_layers + 1, num_prediction_layers=0)


def prediction_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Tensors that must be there, by their whole names."""
    prefix, hidden = layer_prefix(config.num_layers), config.hidden_size
    layer = {
        name: shape
        for name, shape in expected_shapes(with_prediction_layer(config)).items()
        if name.startswith(prefix)
    }
    return layer | {
        prefix + TOKEN_NORM: (hidden,),
        prefix + STATE_NORM: (hidden,),
        prefix + JOIN: (hidden, 2 * hidden),
        prefix + FINAL_NORM: (hidden,),
    }


def optional_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Those that may be there."""
    prefix, ends = layer_prefix(config.num_layers), (config.vocab_size, config.hidden_size)
    return {prefix + LM_HEAD: ends, prefix + EMBEDDING: ends}
