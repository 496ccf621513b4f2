"""The tensors of a mixture of experts: their names and shapes."""

from __future__ import annotations

from cluster.models.card import DecoderConfig, MixtureConfig

ROUTER, ROUTER_BIAS = "mlp.gate.weight", "mlp.gate.e_score_correction_bias"
SHARED = "mlp.shared_experts."


def expert_prefix(index: int) -> str:
    """Of the names of one routed expert, without the layer's prefix."""
    return f"mlp.experts.{index}."


def mixture_shapes(config: DecoderConfig, mixture: MixtureConfig) -> dict[str, tuple[int, ...]]:
    """The tensors of a mixture's layer, without the layer's prefix."""
    shapes: dict[str, tuple[int, ...]] = {ROUTER: (mixture.num_experts, config.hidden_size)}
    if mixture.has_score_bias:
        shapes[ROUTER_BIAS] = (mixture.num_experts,)
    for index in range(mixture.num_experts):
        shapes |= _gated(expert_prefix(index), mixture.expert_size, config.hidden_size)
    if mixture.shared_size:
        shapes |= _gated(SHARED, mixture.shared_size, config.hidden_size)
    return shapes


def _gated(prefix: str, size: int, hidden: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}gate_proj.weight": (size, hidden),
        f"{prefix}up_proj.weight": (size, hidden),
        f"{prefix}down_proj.weight": (hidden, size),
    }
