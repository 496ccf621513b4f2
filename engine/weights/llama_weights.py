"""The weights of a Llama-family decoder, layer by layer, fused as the decoder multiplies them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import DecoderConfig, ModelCard
from engine.weights.checkpoint import Checkpoint, open_checkpoint
from engine.weights.tensor_names import (
    EMBEDDING,
    FINAL_NORM,
    LM_HEAD,
    ROPE_DIVISORS,
    expected_shapes,
    layer_prefix,
)

ARCHITECTURES = frozenset({"llama", "LlamaForCausalLM", "MistralForCausalLM"})
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_IGNORED_SUFFIX = "rotary_emb.inv_freq"  # old checkpoints store what the config implies


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One decoder layer; matrices are [out, in]."""

    input_norm: torch.Tensor  # [hidden]
    qkv: torch.Tensor  # [(num_heads + 2 * num_kv_heads) * head_dim, hidden]
    qkv_bias: torch.Tensor | None
    o: torch.Tensor  # [hidden, num_heads * head_dim]
    o_bias: torch.Tensor | None
    post_attention_norm: torch.Tensor  # [hidden]
    gate_up: torch.Tensor  # [2 * intermediate, hidden]
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor  # [hidden, intermediate]
    down_bias: torch.Tensor | None


class LlamaWeights:
    """Reads tensors when they are asked for, so that one layer at a time is held twice.

    Opening checks names and shapes of all tensors. Raises UnsupportedModel or BadCheckpoint.
    """

    def __init__(self, card: ModelCard, dtype: torch.dtype, device: torch.device) -> None:
        if card.architecture not in ARCHITECTURES:
            raise UnsupportedModel(
                f"{card.name} has the architecture {card.architecture!r}; supported: "
                f"{', '.join(sorted(ARCHITECTURES))}"
            )
        self.config = card.config
        self.dtype, self.device = dtype, device
        self._checkpoint = open_checkpoint(card)
        check_tensors(self._checkpoint, card.config)

    def embedding(self) -> torch.Tensor:
        """[vocab, hidden]."""
        return self._read(EMBEDDING)

    def lm_head(self) -> torch.Tensor | None:
        """[vocab, hidden]; None when it is the embedding."""
        return None if self.config.tie_word_embeddings else self._read(LM_HEAD)

    def final_norm(self) -> torch.Tensor:
        """[hidden]."""
        return self._read(FINAL_NORM)

    def rope_divisors(self) -> torch.Tensor | None:
        """float32 [head_dim / 2] on the CPU: what divides the inverse frequencies, if stored."""
        if ROPE_DIVISORS not in self._checkpoint.names():
            return None
        return self._checkpoint.read(ROPE_DIVISORS).float()

    def layer(self, index: int) -> LayerWeights:
        """The weights of one layer."""
        prefix = layer_prefix(index)
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        has_bias, has_mlp_bias = self.config.attention_bias, self.config.mlp_bias
        return LayerWeights(
            input_norm=self._read(prefix + "input_layernorm.weight"),
            qkv=self._fused(attention, ("q", "k", "v")),
            qkv_bias=self._fused(attention, ("q", "k", "v"), "bias") if has_bias else None,
            o=self._fused(attention, ("o",)),
            o_bias=self._fused(attention, ("o",), "bias") if self.config.output_bias else None,
            post_attention_norm=self._read(prefix + "post_attention_layernorm.weight"),
            gate_up=self._fused(mlp, ("gate", "up")),
            gate_up_bias=self._fused(mlp, ("gate", "up"), "bias") if has_mlp_bias else None,
            down=self._fused(mlp, ("down",)),
            down_bias=self._fused(mlp, ("down",), "bias") if has_mlp_bias else None,
        )

    def _fused(self, prefix: str, names: tuple[str, ...], kind: str = "weight") -> torch.Tensor:
        parts = [self._read(f"{prefix}{name}_proj.{kind}") for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _read(self, name: str) -> torch.Tensor:
        return self._checkpoint.read(name).to(device=self.device, dtype=self.dtype)


def check_tensors(checkpoint: Checkpoint, config: DecoderConfig) -> None:
    """Raises BadCheckpoint naming the first tensor that is missing, extra or of a wrong shape."""
    expected, found = expected_shapes(config), checkpoint.names()
    for name, shape in expected.items():
        if name not in found:
            raise BadCheckpoint(f"the checkpoint lacks {name}; download the model again")
        if checkpoint.shape(name) != shape:
            raise BadCheckpoint(
                f"{name} has shape {checkpoint.shape(name)}; the model's configuration says {shape}"
            )
    optional = {ROPE_DIVISORS, LM_HEAD}  # some files of tied models repeat the embedding
    extra = sorted(n for n in found - expected.keys() - optional if not n.endswith(_IGNORED_SUFFIX))
    if extra:
        raise BadCheckpoint(
            f"the checkpoint has {len(extra)} tensor(s) that a Llama decoder of this configuration "
            f"does not use, such as {extra[0]}; the file and its configuration do not fit together"
        )
