"""An EAGLE-3 head's config.json, in both layouts that are about.

the authors'    "LlamaForCausalLMEagle3": the layer's keys at the top, `eagle_config` inside
speculators'    "speculators_model_type": the layer's keys under `transformer_layer_config`

The layers that are read are counted by what they give in the first, by what comes into them in the
second. Another count, or a head of another shape, would cost guesses and no text.
"""

from __future__ import annotations

from typing import Any, Final

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import DecoderConfig
from cluster.models.decoder_bounds import check_decoder, check_size
from cluster.models.fields import Fields
from cluster.models.heads.card import HeadsConfig
from cluster.models.hf.shape import Defaults, decoder_of_shape, refuse_if_set

_MARK: Final = "eagle3"
_LLAMA = Defaults(max_context_tokens=2048)
_LAYER, _SPECULATORS_LAYER = "midlayer.", "layers.0."
_MAX_LAYERS_READ: Final = 8
_LAYER_IDS: Final = "eagle_aux_hidden_state_layer_ids"


def is_eagle3(values: dict[str, Any]) -> bool:
    """Whether a config.json is that of such a head."""
    names = [values.get("speculators_model_type"), *_listed(values.get("architectures"))]
    return any(_MARK in name.lower() for name in names if isinstance(name, str))


def heads_of_eagle3(values: dict[str, Any], where: str) -> tuple[str, HeadsConfig]:
    """The architecture's name and the shape. Raises UnsupportedModel for an option that is not run,
    BadCheckpoint for bad values."""
    fields = Fields(values, where)
    is_nested = "transformer_layer_config" in fields
    eagle = fields if is_nested else fields.section("eagle_config")
    layer = _layer(fields.section("transformer_layer_config") if is_nested else fields)
    for part in (fields, eagle):
        refuse_if_set(part, "fc_norm", "norm_output", "norm_before_fc")
    if not eagle.flag("use_aux_hidden_state", True):
        raise UnsupportedModel(f"{eagle.where}: use_aux_hidden_state false is not run")
    draft_vocab_size = fields.integer("draft_vocab_size", layer.vocab_size)
    name = fields.texts("architectures")[0] if fields.texts("architectures") else _MARK
    return name, HeadsConfig(
        layer=layer,
        draft_vocab_size=check_size("vocab_size", draft_vocab_size, where),
        target_hidden_size=_optional(fields, "target_hidden_size"),
        layers_read=_layers_read(eagle, later=not is_nested),
        norms_before_residual=fields.flag("norm_before_residual", False),
        layer_prefix=_SPECULATORS_LAYER if is_nested else _LAYER,
    )


def _layer(fields: Fields) -> DecoderConfig:
    kind = fields.text("model_type", "llama")
    if kind != "llama":
        raise UnsupportedModel(f"{fields.where}: a head of model_type {kind!r}; supported: 'llama'")
    refuse_if_set(fields, "attention_bias", "mlp_bias", "bias", "sliding_window")
    layer = check_decoder(decoder_of_shape(fields, _LLAMA), fields.where)
    if layer.num_layers != 1:
        raise UnsupportedModel(f"{fields.where}: a head of {layer.num_layers} layers; supported: 1")
    return layer


def _layers_read(fields: Fields, *, later: bool) -> tuple[int, ...] | None:
    """`later`: those stated are counted by their output, which comes into the next."""
    ids = fields.integers(_LAYER_IDS)
    if not ids:
        return None
    found = tuple(index + later for index in ids)
    if len(found) > _MAX_LAYERS_READ or sorted(set(found)) != list(found):
        raise BadCheckpoint(f"{fields.where}: {_LAYER_IDS} is {ids}; they must rise, and be few")
    return found


def _optional(fields: Fields, key: str) -> int | None:
    return fields.integer(key) if key in fields else None


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
