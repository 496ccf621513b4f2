"""A Hugging Face config.json as a decoder's shape, with transformers' defaults for absent keys.

Refuses by name what the engine does not implement, before any weight is read.
"""

from __future__ import annotations

from typing import Any, Final

from cluster.errors import UnsupportedModel
from cluster.models.card import DecoderConfig
from cluster.models.decoder_bounds import check_decoder
from cluster.models.fields import Fields
from cluster.models.hf.dense import DENSE
from cluster.models.hf.gemma import GEMMA
from cluster.models.hf.latent import LATENT
from cluster.models.hf.mixture import MIXTURES
from cluster.models.hf.pooling import causal_name
from cluster.models.hf.shape import FamilyReader

READERS: Final[dict[str, FamilyReader]] = {**DENSE, **GEMMA, **MIXTURES, **LATENT}
"""By the name under "architectures"."""


def decoder_of_hf(values: dict[str, Any], where: str) -> tuple[str, DecoderConfig]:
    """The architecture's name and the shape.

    Raises UnsupportedModel for an unknown architecture or option, BadCheckpoint for bad values.
    """
    fields = Fields(values, where)
    architecture = _architecture(fields)
    return architecture, check_decoder(READERS[causal_name(architecture)](fields), where)


def _architecture(fields: Fields) -> str:
    names = fields.texts("architectures")
    if len(names) != 1 or causal_name(names[0]) not in READERS:
        raise UnsupportedModel(
            f"{fields.where} has architectures {names}; supported: {', '.join(READERS)}"
        )
    return names[0]
