"""A mixture of experts: a row goes to the few that its router chooses, and to the shared ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.models.card import MixtureConfig
from engine.model.layers.feed_forward import FeedForward, GatedMlp
from engine.model.weights.mixture_weights import MixtureWeights, SharedWeights
from kernels.dispatch import KernelSet
from kernels.experts import Experts, GroupRank, RouteExperts, RoutingRule, ScoreFunction
from kernels.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """See FeedForward."""

    router: Linear
    router_bias: torch.Tensor | None  # float32 [num_experts]
    rule: RoutingRule
    route: RouteExperts
    experts: Experts
    shared: FeedForward | None

    @property
    def num_bytes(self) -> int:
        """See FeedForward."""
        shared = 0 if self.shared is None else self.shared.num_bytes
        return self.router.num_bytes + self.experts.num_bytes + shared

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See FeedForward."""
        ids, weights = self.route(self.router.logits(x), self.router_bias, self.rule)
        routed = self.experts(x, ids, weights)
        return routed if self.shared is None else routed.add_(self.shared(x))


def build_mixture(kernels: KernelSet, weights: MixtureWeights, config: MixtureConfig) -> Mixture:
    """Takes the weights over."""
    return Mixture(
        router=kernels.pack_linear(weights.router),
        router_bias=weights.router_bias,
        rule=routing_rule(config),
        route=kernels.route_experts,
        experts=kernels.pack_experts(weights.gate_up, weights.down),
        shared=None if weights.shared is None else _shared(kernels, weights.shared),
    )


def routing_rule(config: MixtureConfig) -> RoutingRule:
    """A configuration in the kernels' words."""
    return RoutingRule(
        num_chosen=config.num_experts_per_token,
        score=ScoreFunction(config.score.value),
        normalizes_weights=config.normalizes_weights,
        scaling_factor=config.scaling_factor,
        num_groups=config.num_groups,
        num_chosen_groups=config.num_chosen_groups,
        group_rank=GroupRank(config.group_score.value),
    )


def _shared(kernels: KernelSet, weights: SharedWeights) -> GatedMlp:
    return GatedMlp(
        kernels.pack_linear(weights.gate_up),
        kernels.pack_linear(weights.down),
        kernels.silu_mul,
    )
